"""The loop of distributed training: ask actors for steps, learn, evaluate, save."""

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import numpy as np

from replaylab.arguments import POSITIVE, instance, optional, place, takes, text, tuple_of, whole
from replaylab.distributed.own_code import modules_named, packed
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay import RemoteReplay, RemoteWriter, Snapshots
from replaylab.distributed.replay.shards.transport import Transport
from replaylab.distributed.training import checkpoint
from replaylab.distributed.training.actor import ActorDeclaration, Published
from replaylab.distributed.training.crew import Crew, Stage
from replaylab.distributed.training.learner import LearnerRun
from replaylab.distributed.training.options import Actors, Shards
from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import Hook
from replaylab.learners.api.random_streams import Stream, sequence
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.learners.training.checkpoint import Checkpoints
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.replay_buffer import make_replay_buffer
from replaylab.replay import Uniform

log = logging.getLogger("replaylab.distributed")

SECONDS_TO_WAIT = 0.2
"""How long the learner waits at most for actors, so that Ctrl-C is heard."""

Declare = Callable[[int, int], ActorDeclaration]
MakeStage = Callable[[Declare, Callable[[int], RemoteWriter]], Stage]


@dataclass(frozen=True, eq=False)
class Plan:
    """What is trained, and by what means.

    Attributes:
        run: What learns.
        actors: What steps.
        shards: What stores.
        checkpoints: Where and how often the run is saved; None: never.
        resume: Folder of the run to go on from; None: it begins.
        transport: Starts the shards.
        stage: Makes what starts the actors, from what they are declared as and what makes their writers.
        tell: Is called now and then with how it is.
    """

    run: LearnerRun
    actors: Actors
    shards: Shards
    checkpoints: Checkpoints | None
    resume: Path | None
    transport: Transport
    stage: MakeStage
    tell: Callable[[LearnerRun, Crew, RemoteReplay], None] = lambda *_: None


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
            else a Ray of its own on this machine.
        hooks: What watches; of `Checkpoints` one, which says where and how often the run is saved.
        resume: Folder of a run to go on from; the other arguments must be as they were, but for the number of shards.

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
    for one in saving:
        one.check_folder()
    run = LearnerRun(configuration, seed, actors, samples_per_insert, watching)
    with closing(run.env), closing(RaySession(address)) as session:
        session.open()
        from replaylab.distributed.replay.shards.ray_transport import connected  # imports Ray
        from replaylab.distributed.training.board import Teller
        from replaylab.distributed.training.ray_stage import RayStage

        name, code = uuid4().hex, packed(_modules_of(configuration))

        def stage(declare: Declare, writer: Callable[[int], RemoteWriter]) -> Stage:
            return RayStage(name, actors.cores, code, declare, writer)

        transport = connected(name, shards.placement, shards.count)
        begun = None if resume is None else Path(resume)
        saver = saving[0] if saving else None
        with closing(Teller(name)) as tell:
            return perform(Plan(run, actors, shards, saver, begun, transport, stage, tell))


def perform(plan: Plan) -> Metrics:
    """Train, and return what was measured."""
    run, actors = plan.run, plan.actors
    lives = [0] * actors.count
    with ExitStack() as running:
        if plan.resume is None:
            remote = _new_replay(plan)
        else:
            make, before = checkpoint.load(plan.resume.resolve(), run, actors.environments)
            remote = make(**_means(plan))
            # those after the checkpoint are not known, and their streams must not come again: begin anywhere
            lives = [max(before) + 1 + secrets.randbelow(2**32)] * actors.count
        running.callback(remote.close)

        def declare(number: int, life: int) -> ActorDeclaration:
            epsilons = tuple(actors.epsilons()[number].tolist())
            return ActorDeclaration(number, life, run.configuration, run.learner, run.seeds[0], epsilons)

        def writer(number: int) -> RemoteWriter:
            return remote.writer(range(number * actors.envs, (number + 1) * actors.envs))

        crew = Crew(plan.stage(declare, writer), lives, actors.envs, actors.unroll)
        running.callback(crew.stop)
        run.begin(remote)
        while run.until < run.clock.total:
            until = run.until = _next_stop(run, plan.checkpoints)
            _advance(run, crew, until, actors.publish_every, lambda: plan.tell(run, crew, remote))
            run.evaluate(until)
            if plan.checkpoints is not None and _due(run, plan.checkpoints, until):
                told = [post.life for post in crew.posts]
                checkpoint.save(plan.checkpoints.folder.resolve(), run, remote, actors.environments, told)
        run.end()
        if plan.checkpoints is not None:
            plan.checkpoints.on_end(run, run.clock.over)
        return run.recorder.table()


def _advance(run: LearnerRun, crew: Crew, until: int, publish_every: int, tell: Callable[[], None]) -> None:
    """Train until so many steps are stored and all that may be learned from them is learned."""
    stage = crew.stage
    published = Published(-publish_every, None)

    def newest() -> Published:
        nonlocal published
        if run.agents.updates - published.version >= publish_every:
            version, weights = run.weights()
            published = Published(version, stage.publish(weights))
        return published

    while True:
        crew.ask(min(until, run.wanted) - run.clock.steps - crew.in_flight, run.progress, newest)
        may_learn = run.may_learn()
        if run.clock.steps >= until and not may_learn and not crew.in_flight:
            return
        reports = crew.collect(0.0 if may_learn else SECONDS_TO_WAIT)
        run.take(reports)
        if may_learn:
            run.learn()
        if reports:
            run.after_turn()
        tell()


def _next_stop(run: LearnerRun, checkpoints: Checkpoints | None) -> int:
    """Return the next number of steps at which something is due, after the last such, whatever is stored by now."""
    now, total = run.until, run.clock.total
    periods = [run.configuration.eval_every, checkpoints and checkpoints.every]
    return min([total, *((now // one + 1) * one for one in periods if one)])


def _due(run: LearnerRun, checkpoints: Checkpoints, until: int) -> bool:
    """Whether the run is to be saved now."""
    return checkpoints.every is not None and (until % checkpoints.every == 0 or until == run.clock.total)


def _new_replay(plan: Plan) -> RemoteReplay:
    """Return an empty replay for the steps of all actors' environments."""
    run, environments = plan.run, plan.actors.environments
    like = make_replay_buffer(
        env=run.env,
        capacity=1,
        seeds=run.seeds,
        sampler=Uniform(),
        transforms=run.transforms,
        count_replays=False,
    )
    return RemoteReplay(
        run.learner.capacity,
        like.fields,
        num_envs=environments,
        sampler=run.sampler,
        transforms=run.transforms,
        next_obs=cast("Any", like.next_obs),
        **_means(plan),
    )


def _means(plan: Plan) -> dict[str, Any]:
    """Return the options of a replay that are not saved with it."""
    shards, saved = plan.shards, plan.checkpoints
    snapshot = None
    if saved is not None and saved.every is not None:
        snapshot = Snapshots(saved.folder.resolve() / checkpoint.REPLAY, shards.snapshot_period)
    return {
        "shards": shards.count,
        "placement": shards.placement,
        "prefetch": shards.prefetch,
        "snapshot": snapshot,
        "seed": np.random.SeedSequence(
            sequence(plan.run.seeds[0], Stream.SAMPLING).entropy, spawn_key=(Stream.SAMPLING, plan.run.clock.steps)
        ),
        "transport": plan.transport,
    }


def _modules_of(configuration: TrainingConfig) -> set[str]:
    """Return the first parts of the names of all modules that a configuration is made of."""
    parts = (configuration.learner, *configuration.transforms)
    settings = [getattr(one, "__dict__", {}) for one in parts]
    return modules_named([configuration.env_id, dict(configuration.env_options or {}), *map(type, parts), *settings])
