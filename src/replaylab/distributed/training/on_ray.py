"""Training by actors on Ray: connects, starts the loop, and lets those outside see how it is."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from pathlib import Path
from uuid import uuid4

from replaylab.arguments import POSITIVE, instance, optional, place, takes, text, tuple_of, whole
from replaylab.distributed.own_code import modules_named, packed
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
    samples_per_insert=optional(POSITIVE),
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
    samples_per_insert: float | None = None,
    address: str | None = None,
    hooks: Sequence[Hook] = (),
    resume: str | PathLike[str] | None = None,
) -> Metrics:
    """Train one learner on what N actors store in S shards, and return what was measured.

    The budget counts the steps of all actors. Evaluations are as in `replaylab.learners.train`: greedy, by the learner,
    at the same numbers of steps and of updates, and on the same episodes. Which steps are stored and drawn depends on
    when calls arrive, so two runs with the same seed differ.

    Args:
        configuration: What is trained, and what is recorded of it; with a budget in steps.
        seed: Of the learner, and with number and life of every actor.
        actors: What steps.
        shards: What stores.
        samples_per_insert: Rows learned from for each step stored after `learning_starts`, at most; None: updates are
            due at the steps at which one process makes them.
        address: ``"host:port"`` of a Ray cluster, or ``"auto"``; None: the one that this process is connected to, or
            else its own Ray on this machine.
        hooks: What watches; of `Checkpoints` one, which says where and how often the run is saved.
        resume: Folder of a run to continue from; the other arguments must be as they were, except for the number of
        shards.

    Raises:
        ConfigError: An argument is out of its range, or cannot be had with actors.
        NonFiniteError: The environment gave a reward or an observation that is NaN or infinite.
        SnapshotError: `resume` holds no run, or another one.
        StorageError: Actors or shards die faster than they can be started.
        MissingExtraError: Ray is not installed.
    """
    saving = [hook for hook in hooks if isinstance(hook, Checkpoints)]
    watching = [hook for hook in hooks if not isinstance(hook, Checkpoints)]
    if len(saving) > 1:
        raise ConfigError(f"`hooks` must have one Checkpoints at most with actors, but got {len(saving)}")
    for checkpoints in saving:
        checkpoints.check_folder()
    warn_of_budget(configuration)
    run = LearnerRun(configuration, seed, actors, samples_per_insert, watching)
    with closing(run.env), closing(RaySession(address)) as session:
        session.open()
        from replaylab.distributed.replay.shards.ray_transport import connected  # imports Ray
        from replaylab.distributed.training.ray_launcher import RayLauncher
        from replaylab.distributed.training.status_board import StatusReporter

        name = uuid4().hex
        launcher = partial(RayLauncher, name, actors.cores, packed(_modules_of(configuration)))
        transport = connected(name, shards.placement, shards.count)
        begun = None if resume is None else Path(resume)
        saver = saving[0] if saving else None
        with closing(StatusReporter(name)) as tell:
            return perform(run, actors, shards, saver, begun, transport, launcher, tell)


def _modules_of(configuration: TrainingConfig) -> set[str]:
    """Return the first parts of the names of all modules that a configuration is made of."""
    parts = (configuration.learner, *configuration.transforms)
    settings = [getattr(part, "__dict__", {}) for part in parts]
    return modules_named([configuration.env_id, dict(configuration.env_options or {}), *map(type, parts), *settings])
