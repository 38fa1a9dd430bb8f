"""The loop of the learner: learn, publish weights, evaluate, save. Actors run beside it. It does not import Ray."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, cast

from replaylab.distributed.replay import RemoteOptions, RemoteReplay, Snapshots
from replaylab.distributed.training import checkpoint
from replaylab.distributed.training.actor import Actor
from replaylab.distributed.training.actor_pool import ActorPool
from replaylab.distributed.training.evaluator import Evaluations, Evaluator, Waiting
from replaylab.distributed.training.learner import LearnerRun
from replaylab.distributed.training.options import Actors, Shards
from replaylab.learners import Checkpoints, Metrics, Stream
from replaylab.learners.api.one_replica import OneReplica
from replaylab.learners.api.random_streams import sequence
from replaylab.learners.training.factories import make_replay_buffer
from replaylab.replay import Replay, Uniform

PERIOD = 0.02  # seconds between two exchanges of the learner with the hub
CHECK_PERIOD = 0.2  # seconds between two checks for errors of actors and complete evaluations
FIGURES_PERIOD = 1.0  # seconds between two reports for `cluster_status`
PUBLISHING = 0.05  # largest share of the learner's time for publishing weights


def perform(
    run: LearnerRun,
    actors: Actors,
    shards: Shards,
    checkpoints: Checkpoints | None,
    resume: Path | None,
    launch: Callable[[str], Any],
) -> Metrics:
    """Train, and return the metrics.

    Args:
        run: The learner.
        actors: Options of the actors.
        shards: Options of the replay.
        checkpoints: Where and how often the run is saved; None: never.
        resume: Folder of the run to continue; None: a new one.
        launch: Returns a `Launcher`, from the name of the replay's run.
    """
    first_life, envs, waiting = 0, actors.envs, Waiting()
    if resume is None:
        checkpoint.discard(checkpoints)
        create = _replay_of(run, actors.environments)
    else:
        create, waiting = checkpoint.load(resume.resolve(), run)
        # lives after the checkpoint are unknown, and their random streams must not be used again
        first_life = 1 + secrets.randbelow(2**62)
    snapshot = None
    if checkpoints is not None and checkpoints.every is not None:
        snapshot = Snapshots(checkpoints.folder.resolve() / checkpoint.REPLAY, shards.snapshot_period)
    options = RemoteOptions(placement=shards.placement, snapshot=snapshot)
    configuration, learner, (seed,) = run.configuration, run.learner, run.seeds
    sampling = sequence(seed, Stream.SAMPLING, run.clock.steps)
    replay = create(shards=shards.count, seed=sampling, options=options)

    def make(number: int, hub: Any) -> Callable[[int], Actor]:
        writer = replay.writer(range(number * envs, (number + 1) * envs))
        return lambda life: Actor(number, first_life + life, actors, configuration, learner, seed, writer, hub)

    with ExitStack() as running:
        running.callback(replay.close)
        launcher = launch(replay.run)
        running.callback(launcher.stop)
        pool = ActorPool(launcher, make, actors.count, envs, run.clock.steps)
        evaluator = None
        if configuration.eval_every is not None:
            evaluator = launcher.start("evaluator", lambda _: Evaluator(configuration, learner, seed))
        evaluations = Evaluations(evaluator, waiting)
        run.replay = cast("Replay", OneReplica(cast("Replay", replay)))
        run.hooks.emit("on_begin", run)
        learning = Learning(run, pool, evaluations, replay)
        periods = configuration.eval_every, checkpoints and checkpoints.every
        while run.until < run.clock.total:
            stops = [(run.until // every + 1) * every for every in periods if every]
            run.until = min([run.clock.total, *stops])
            learning.advance()
            if _is_due(run, configuration.eval_every):
                evaluations.waiting.append((run.until, run.weights()))
            if checkpoints is not None and _is_due(run, checkpoints.every):
                checkpoint.save(checkpoints.folder.resolve(), run, replay, evaluations.waiting)
        learning.report_evaluations(wait=True)
        run.hooks.emit("on_end", run, run.clock.over)
        if checkpoints is not None:
            checkpoints.on_end(run, run.clock.over)
        return run.recorder.table()


class Learning:
    """The learner's work between two evaluations or checkpoints."""

    def __init__(self, run: LearnerRun, pool: ActorPool, evaluations: Evaluations, replay: RemoteReplay) -> None:
        self._run, self._pool, self._evaluations, self._replay = run, pool, evaluations, replay
        self._version, self._waited = -1, 0.0
        self._exchange_at = self._publish_at = self._check_at = 0.0
        self._figures_at, self._counted = monotonic(), (run.clock.steps, run.agents.updates, 0.0)

    def advance(self) -> None:
        """Train until `run.until` steps are stored and all updates that are due by then are made."""
        run = self._run
        while run.may_learn() or run.clock.steps < run.until:
            if run.may_learn():
                run.learn()
            else:
                sleep(PERIOD / 2)
                self._waited += PERIOD / 2
            now = monotonic()
            if now >= self._exchange_at:
                self._exchange_at = now + PERIOD
                self._exchange(now)

    def report_evaluations(self, *, wait: bool = False) -> None:
        """Record the results of complete evaluations, or, if `wait`, of all."""
        for due, values in self._evaluations.results(wait=wait):
            with self._run.clock.at(due):
                self._run.recorder.report(self._run.clock, values)

    def _exchange(self, now: float) -> None:
        """Send news to the hub, and take those of the actors."""
        run, weights, figures = self._run, None, dict[str, Any]()
        if now >= self._check_at:
            self._check_at = now + CHECK_PERIOD
            self._pool.check()
            self.report_evaluations()
        if not self._pool.is_ready:
            return
        began = monotonic()
        if run.agents.updates != self._version and now >= self._publish_at:
            self._version, weights = run.agents.updates, run.weights()
        if now >= self._figures_at + FIGURES_PERIOD:
            figures = self._figures(now)
        is_end = run.allowed == run.clock.total
        report = self._pool.publish(self._version, weights, run.progress, run.allowed, is_end, figures)
        if weights is not None:
            self._publish_at = now + (monotonic() - began) / PUBLISHING
        run.take(report.steps, report.returns, report.lengths)

    def _figures(self, now: float) -> dict[str, Any]:
        """Return the figures of the training for `cluster_status`."""
        run, seconds = self._run, now - self._figures_at
        counts = run.clock.steps, run.agents.updates, self._waited
        steps, updates, waited = ((new - old) / seconds for new, old in zip(counts, self._counted, strict=True))
        self._figures_at, self._counted = now, counts
        return {
            "environment": run.env_id,
            "learner": type(run.configuration.learner).__name__,
            "steps": counts[0],
            "total_steps": run.clock.total,
            "steps_per_second": steps,
            "updates": counts[1],
            "updates_per_second": updates,
            "skipped_updates": run.skipped,
            "learner_waits": waited,
            "waiting_evaluations": len(self._evaluations.waiting),
            "replay": asdict(self._replay.stats()),
        }


def _is_due(run: LearnerRun, every: int | None) -> bool:
    return every is not None and (run.until % every == 0 or run.until == run.clock.total)


def _replay_of(run: LearnerRun, environments: int) -> Callable[..., RemoteReplay]:
    """Return a function that creates an empty replay for the steps of all actors' environments."""
    parts: dict[str, Any] = {"env": run.env, "seeds": run.seeds, "transforms": run.transforms}
    like = make_replay_buffer(**parts, capacity=1, sampler=Uniform(), count_replays=False)
    options: dict[str, Any] = {"sampler": run.sampler, "transforms": run.transforms, "next_obs": like.next_obs}
    return partial(RemoteReplay, run.learner.capacity, like.fields, num_envs=environments, **options)
