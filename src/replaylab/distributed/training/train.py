"""`train`, the function that trains with actors on Ray."""

from collections.abc import Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path

from replaylab.arguments import instance, optional, place, takes, text, tuple_of, whole
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.training.learner import LearnerRun
from replaylab.distributed.training.loop import perform
from replaylab.distributed.training.options import Actors, Shards
from replaylab.errors import ConfigError
from replaylab.learners import Checkpoints, Hook, Metrics, TrainingConfig
from replaylab.learners.training.configuration import warn_of_budget


@takes(
    configuration=instance(TrainingConfig, 'a TrainingConfig("CartPole-v1", DQN(), Uniform(), total_steps=50_000)'),
    seed=whole(0),
    actors=instance(Actors, "Actors(4)"),
    shards=instance(Shards, "Shards(2)"),
    address=optional(text),
    hooks=tuple_of(instance(Hook, "a Hook"), "a list or tuple of hooks"),
    resume=optional(place("a folder")),
)
def train(
    configuration: TrainingConfig,
    seed: int = 0,
    *,
    actors: Actors = Actors(),  # noqa: B008 - frozen
    shards: Shards = Shards(),  # noqa: B008
    address: str | None = None,
    hooks: Sequence[Hook] = (),
    resume: str | PathLike[str] | None = None,
) -> Metrics:
    """Train one learner on the steps of N actors, stored in S shards, and return the metrics.

    The budget counts the steps of all actors. Evaluations are those of `replaylab.learners.train`: greedy, after the
    same numbers of steps and updates, and on the same episodes; another process performs them. Which steps are stored
    and drawn depends on when calls arrive, so two runs with the same seed differ.

    Args:
        configuration: The settings of training, with a budget in steps.
        seed: Seed of the learner, and, with number and life, of every actor.
        actors: Options of the actors.
        shards: Options of the shards.
        address: ``"host:port"`` of a Ray cluster, or ``"auto"`` for the one on this machine; None: the one that this
            process is connected to, or else a new Ray on this machine.
        hooks: Hooks; at most one `Checkpoints`, which sets where and how often the run is saved. A new run replaces
            a run that was saved in the same folder.
        resume: Folder of a run to continue; the other arguments must be those of that run, except for `shards`.

    Raises:
        ConfigError: An argument is invalid, or not available with actors.
        NonFiniteError: The environment returned a reward or an observation that is NaN or infinite.
        SnapshotError: `resume` holds no run, or another one.
        StorageError: Actors or shards die faster than they can be restarted, or the cluster's head node is dead.
        MissingExtraError: Ray is not installed.
    """
    saving = [hook for hook in hooks if isinstance(hook, Checkpoints)]
    watching = [hook for hook in hooks if not isinstance(hook, Checkpoints)]
    if len(saving) > 1:
        raise ConfigError(
            f"`hooks` must have at most one Checkpoints with actors, but got {len(saving)}; leave the others out"
        )
    for checkpoints in saving:
        checkpoints.check_folder()
    warn_of_budget(configuration)
    run = LearnerRun(configuration, seed, actors, watching)
    with closing(run.env), closing(RaySession(address)) as session:
        session.open()
        from replaylab.distributed.training.launcher import Launcher  # imports Ray

        saver, begun = saving[0] if saving else None, None if resume is None else Path(resume)
        return perform(run, actors, shards, saver, begun, lambda name: Launcher(name, actors.cores))
