"""The loop of distributed training: ask actors for steps, learn, evaluate, save. It knows nothing of Ray."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import numpy as np

from replaylab.distributed.replay import RemoteOptions, RemoteReplay, RemoteWriter, Snapshots
from replaylab.distributed.replay.shards.transport import Transport
from replaylab.distributed.training import checkpoint
from replaylab.distributed.training.actor import ActorDeclaration, Published
from replaylab.distributed.training.actor_pool import ActorPool, Launcher
from replaylab.distributed.training.learner import LearnerRun
from replaylab.distributed.training.options import Actors, Shards
from replaylab.learners import Checkpoints, Metrics, Stream
from replaylab.learners.api.one_replica import OneReplica
from replaylab.learners.api.random_streams import sequence
from replaylab.learners.training.factories import make_replay_buffer
from replaylab.replay import Replay, Uniform

SECONDS_TO_WAIT = 0.2
"""How long the learner waits at most for actors, so that Ctrl-C is heard."""

Declare = Callable[[int, int], ActorDeclaration]
MakeLauncher = Callable[[Declare, Callable[[int], RemoteWriter]], Launcher]


def perform(
    run: LearnerRun,
    actors: Actors,
    shards: Shards,
    checkpoints: Checkpoints | None,
    resume: Path | None,
    transport: Transport,
    make_launcher: MakeLauncher,
    tell: Callable[[LearnerRun, ActorPool, RemoteReplay], None] = lambda *_: None,
) -> Metrics:
    """Train, and return what was measured.

    Args:
        run: What learns.
        actors: What steps.
        shards: What stores.
        checkpoints: Where and how often the run is saved; None: never.
        resume: Folder of the run to continue from; None: it begins.
        transport: Starts the shards.
        make_launcher: Makes what starts the actors, from what they are declared as and what makes their writers.
        tell: Is called now and then with how it is.
    """
    lives = [0] * actors.count
    with ExitStack() as running:
        if resume is None:
            remote = _new_replay(run, actors.environments, _options(run, shards, checkpoints, transport))
        else:
            make, before = checkpoint.load(resume.resolve(), run, actors.environments)
            remote = make(**_options(run, shards, checkpoints, transport))
            # those after the checkpoint are not known, and their streams must not come again: begin anywhere
            lives = [max(before) + 1 + secrets.randbelow(2**32)] * actors.count
        running.callback(remote.close)

        def declare(number: int, life: int) -> ActorDeclaration:
            epsilons = tuple(actors.epsilons()[number].tolist())
            return ActorDeclaration(number, life, run.configuration, run.learner, run.seeds[0], epsilons)

        def writer(number: int) -> RemoteWriter:
            return remote.writer(range(number * actors.envs, (number + 1) * actors.envs))

        pool = ActorPool(make_launcher(declare, writer), lives, actors.envs, actors.unroll)
        running.callback(pool.stop)
        run.begin(cast("Replay", OneReplica(cast("Replay", remote))))
        while run.until < run.clock.total:
            until = run.until = _next_stop(run, checkpoints)
            _advance(run, pool, until, actors.publish_every, lambda: tell(run, pool, remote))
            run.evaluate(until)
            if checkpoints is not None and _due(run, checkpoints, until):
                actor_lives = [slot.life for slot in pool.slots]
                checkpoint.save(checkpoints.folder.resolve(), run, remote, actors.environments, actor_lives)
        run.hooks.emit("on_end", run, run.clock.over)
        if checkpoints is not None:
            checkpoints.on_end(run, run.clock.over)
        return run.recorder.table()


def _advance(run: LearnerRun, pool: ActorPool, until: int, publish_every: int, tell: Callable[[], None]) -> None:
    """Train until so many steps are stored and all that may be learned from them is learned."""
    launcher = pool.launcher
    published = Published(-publish_every, None)

    def newest() -> Published:
        nonlocal published
        if run.agents.updates - published.version >= publish_every:
            version, weights = run.weights()
            published = Published(version, launcher.publish(weights))
        return published

    while True:
        pool.ask(min(until, run.wanted) - run.clock.steps - pool.in_flight, run.progress, newest)
        may_learn = run.may_learn()
        if run.clock.steps >= until and not may_learn and not pool.in_flight:
            return
        reports = pool.collect(0.0 if may_learn else SECONDS_TO_WAIT)
        run.take(reports)
        if may_learn:
            run.learn()
        if reports:
            run.hooks.emit("after_turn", run)
        tell()


def _next_stop(run: LearnerRun, checkpoints: Checkpoints | None) -> int:
    """Return the next number of steps at which something is due, after the last such, whatever is stored by now."""
    now, total = run.until, run.clock.total
    periods = [run.configuration.eval_every, checkpoints and checkpoints.every]
    return min([total, *((now // period + 1) * period for period in periods if period)])


def _due(run: LearnerRun, checkpoints: Checkpoints, until: int) -> bool:
    """Whether the run is to be saved now."""
    return checkpoints.every is not None and (until % checkpoints.every == 0 or until == run.clock.total)


def _new_replay(run: LearnerRun, environments: int, options: dict[str, Any]) -> RemoteReplay:
    """Return an empty replay for the steps of all actors' environments."""
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
        **options,
    )


def _options(run: LearnerRun, shards: Shards, saved: Checkpoints | None, transport: Transport) -> dict[str, Any]:
    """Return the options of a replay that are not saved with it."""
    snapshot = None
    if saved is not None and saved.every is not None:
        snapshot = Snapshots(saved.folder.resolve() / checkpoint.REPLAY, shards.snapshot_period)
    seed = np.random.SeedSequence(
        sequence(run.seeds[0], Stream.SAMPLING).entropy, spawn_key=(Stream.SAMPLING, run.clock.steps)
    )
    options = RemoteOptions(
        placement=shards.placement, prefetch=shards.prefetch, snapshot=snapshot, transport=transport
    )
    return {"shards": shards.count, "seed": seed, "options": options}
