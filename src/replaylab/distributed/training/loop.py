"""The loop of the learner: learn, publish weights, evaluate, save. Actors run beside it. It does not import Ray."""

import logging
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from replaylab.distributed.ray_session import HeadWatch
from replaylab.distributed.replay import RemoteOptions, RemoteReplay, Snapshots
from replaylab.distributed.replay.shard import ActorLost
from replaylab.distributed.training import checkpoint
from replaylab.distributed.training.actor import Actor
from replaylab.distributed.training.evaluator import Evaluator, Waiting
from replaylab.distributed.training.hub import HUB, SILENCE, Hub, Report
from replaylab.distributed.training.learner import LearnerRun
from replaylab.distributed.training.options import Actors, Shards
from replaylab.errors import StorageError
from replaylab.learners import Checkpoints, Metrics, Stream
from replaylab.learners.api.random_streams import sequence

log = logging.getLogger("replaylab.distributed")

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
    first_life, waiting = 0, Waiting()
    if resume is None:
        checkpoint.discard(checkpoints)
        create = checkpoint.empty_replay(run, actors.environments)
    else:
        create, waiting = checkpoint.load(resume.resolve(), run)
        # lives after the checkpoint are unknown, and their random streams must not be used again
        first_life = 1 + secrets.randbelow(2**62)
    snapshot = None
    if checkpoints is not None and checkpoints.every is not None:
        snapshot = Snapshots(checkpoints.folder.resolve() / checkpoint.REPLAY, shards.snapshot_period)
    options = RemoteOptions(placement=shards.placement, snapshot=snapshot)
    sampling = sequence(run.seeds[0], Stream.SAMPLING, run.clock.steps)
    eval_every, save_every = run.configuration.eval_every, None if checkpoints is None else checkpoints.every
    with ExitStack() as running:
        replay = running.enter_context(create(shards=shards.count, seed=sampling, options=options))
        launcher = launch(replay.run)
        running.callback(launcher.stop)
        run.draw_from(replay)
        learning = Learning(run, actors, replay, launcher, first_life, waiting)
        run.hooks.emit("on_begin", run)
        while run.until < run.clock.total:
            run.until = min(
                [
                    run.clock.total,
                    *((run.until // period + 1) * period for period in (eval_every, save_every) if period),
                ]
            )
            learning.advance()
            if _is_due(run, eval_every):
                waiting.append((run.until, run.weights()))
            if checkpoints is not None and _is_due(run, save_every):
                checkpoint.save(checkpoints.folder.resolve(), run, replay, waiting)
        learning.report_evaluations(wait=True)
        run.hooks.emit("on_end", run, run.clock.over)
        if checkpoints is not None:
            checkpoints.on_end(run, run.clock.over)
        return run.recorder.table()


class Learning:
    """The learner's work between two evaluations or checkpoints, and its calls of hub, actors and evaluator.

    Actors and evaluator restart if they die. With each restart an actor has another life.

    Args:
        run: The learner.
        actors: Options of the actors.
        replay: The replay, for its writers and its figures.
        launcher: Starts processes; see `Launcher`.
        first_life: The first life of each actor.
        waiting: Evaluations without results.
    """

    def __init__(
        self, run: LearnerRun, actors: Actors, replay: RemoteReplay, launcher: Any, first_life: int, waiting: Waiting
    ) -> None:
        self._run, self._replay, self._waiting = run, replay, waiting
        configuration, learner, seed, stored = run.configuration, run.learner, run.seeds[0], run.clock.steps
        hub: Any = launcher.start(HUB, lambda _: Hub(actors.count, actors.envs, stored), has_state=True)

        def actor(number: int) -> Callable[[int], Actor]:
            writer = replay.writer(range(number * actors.envs, (number + 1) * actors.envs))
            return lambda life: Actor(number, first_life + life, actors, configuration, learner, seed, writer, hub)

        self._hub, self._silent = hub, set[int]()
        self._acting = [
            launcher.start(f"actor-{number}", actor(number), anywhere=True).call("run")
            for number in range(actors.count)
        ]
        self._evaluator: Any = None
        self._published: Any = None  # answers of the hub and of the evaluator, if awaited
        self._evaluated: Any = None
        if configuration.eval_every is not None:
            self._evaluator = launcher.start("evaluator", lambda _: Evaluator(configuration, learner, seed))
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
        """Record the results of evaluations, one after the other: of those that are complete, or, if `wait`, of all.

        Raises:
            StorageError: The evaluator died too often.
        """
        while self._waiting:
            self._evaluated = self._evaluated or self._evaluator.call("evaluate", *self._waiting[0])
            if not wait and not self._evaluated.ready():
                return
            values = _answer(self._evaluated, "the evaluator died too often")
            self._evaluated = None
            with self._run.clock.at(self._waiting.popleft()[0]):
                self._run.recorder.report(self._run.clock, values)

    def _exchange(self, now: float) -> None:
        """Send news to the hub, and take those of the actors, unless the hub has not answered the last call.

        Raises:
            StorageError: The hub is dead.
        """
        run, weights, figures = self._run, None, dict[str, Any]()
        if now >= self._check_at:
            self._check_at = now + CHECK_PERIOD
            self._check_actors()
            self.report_evaluations()
        if self._published is not None:
            if not self._published.ready():
                return
            self._take(*_answer(self._published, "the hub died"))
        began = monotonic()
        if run.agents.updates != self._version and now >= self._publish_at:
            self._version, weights = run.agents.updates, run.weights()
        if now >= self._figures_at + FIGURES_PERIOD:
            figures = self._figures(now)
        is_end = run.allowed == run.clock.total
        self._published = self._hub.call("publish", self._version, weights, run.progress, run.allowed, is_end, figures)
        if weights is not None:
            self._publish_at = now + (monotonic() - began) / PUBLISHING

    def _take(self, report: Report, silent: list[int]) -> None:
        """Take the actors' report, and log what went wrong."""
        for number in {*silent} - self._silent:
            log.warning(
                "actor %d has not called for %.0f s, and training continues without it: no node has the cores that it "
                "reserves (see ray status), or its environment is slow to create or to step, or hangs",
                *(number, SILENCE),
            )
        if report.lost:
            log.warning("%d steps were lost with actors or shards, which restart", report.lost)
        self._silent = {*silent}
        self._run.take(report.steps, report.returns, report.lengths)

    def _check_actors(self) -> None:
        """Raise the error that ended an actor, for example of its environment.

        Raises:
            StorageError: An actor died too often, or the cluster's head node is dead.
        """
        HeadWatch.check()
        for number, acting in enumerate(self._acting):
            if acting.ready():
                _answer(self._hub.call("read"), "the hub died")  # actors end with it
                advice = "check the memory of its node, and whether the environment ends its process, then "
                _answer(acting, f"actor {number} died too often", advice)

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
            "waiting_evaluations": len(self._waiting),
            "replay": asdict(self._replay.stats()),
        }


def _answer(pending: Any, words: str, advice: str = "") -> Any:
    """Return the answer of a process; if it has died for good, raise `StorageError` in these words."""
    try:
        return pending.result()
    except ActorLost as error:
        reason = str(error).partition("\n")[0]
        raise StorageError(f"{words}: {reason}; {advice}continue from the last checkpoint") from error


def _is_due(run: LearnerRun, every: int | None) -> bool:
    return every is not None and (run.until % every == 0 or run.until == run.clock.total)
