"""The training loop: one turn of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from replaylab.errors import EmptyBufferError
from replaylab.learners.api.answers import actions_of, feed_back, updated
from replaylab.learners.api.hooks import TrainingRun
from replaylab.learners.api.protocols import TargetAgents, Update, ValueUpdate, reducible_loss, target_values
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.state import Run
from replaylab.replay import Batch
from replaylab.trees import map_leaves


@dataclass(frozen=True)
class Loop:
    """A kind of training loop.

    Attributes:
        make: Returns a run of a configuration, seeds and hooks.
        turn: Takes one step in every environment, and learns.
        lacks: Arguments of `HookList` by which it refuses hooks.
    """

    make: Callable[..., Any]
    turn: Callable[[Any], None]
    lacks: Mapping[str, Any]


def loop_of(configuration: TrainingConfig) -> Loop:
    """Return the loop that a configuration's learner asks for by its setting `replay`."""
    if getattr(configuration.driven_learner, "replay", "host") == "device":
        from replaylab.learners.training.device_run import LACKS, LOOP, DeviceRun  # PyTorch, only where it is needed

        return Loop(DeviceRun, DeviceRun.turn, {"loop": LOOP, "lacks": LACKS})
    return Loop(Run, turn, {})


def turn(run: Run) -> None:
    """Take one step in every environment, and learn."""
    learner, agents, clock, hooks = run.learner, run.agents, run.clock, run.hooks
    hooks.emit("before_turn", run)
    clock.step()
    agents.set_progress(clock.progress)
    obs = map_leaves(lambda part: part[:, None], run.obs)
    action = actions_of(agents, obs, len(run.seeds), 1, explore=True)[:, 0]
    run.observe_waiting(action)

    step = run.step(action)
    stored = hooks.before_store(run, step)
    step.stored = None if stored is step else stored
    ids = run.replay.add(
        obs=stored.obs,
        action=stored.action,
        reward=stored.reward,
        next_obs=stored.next_obs,
        terminated=stored.terminated,
        truncated=stored.truncated,
        final_obs=stored.final_obs,
    )
    clock.end(step.ended)
    hooks.emit("on_step", run, step, ids)
    run.go_on(step)

    if learner.online:
        run.observe(step, ids)
        run.recorder.count_update(0)
    if clock.steps >= learner.learning_starts and clock.steps % learner.train_period == 0:
        for _ in range(learner.gradient_steps if learner.batch_size else 0):
            _replay(run)
        hooks.emit("after_learning", run)
    hooks.evaluations.evaluate(run)
    hooks.emit("after_turn", run)


def _replay(run: Run) -> None:
    """Draw one batch and learn from it."""
    try:
        batch = run.replay.sample(run.learner.batch_size, progress=run.clock.progress)
    except EmptyBufferError as error:
        raise EmptyBufferError(
            f"at step {run.clock.steps:,} there is no batch to learn from: {error}; raise `learning_starts`, "
            f"{run.learner.learning_starts:,} of {type(run.learner).__name__}"
        ) from error
    run.hooks.emit("on_draw", run, batch)
    update = learn_from(batch, run)
    run.hooks.emit("on_update", run, update, batch)


def learn_from(batch: Batch, run: TrainingRun) -> Update:
    """Learn from a batch, and pass its feedback to the sampler."""
    if run.feedback == "reducible_loss":  # L_online − L_target of every row
        agents = cast("TargetAgents", run.agents)  # the run made sure
        target_q = target_values(agents, batch)
        value_update = cast("ValueUpdate", updated(agents, batch))
        feed_back(run.replay, batch.id, reducible_loss(agents, value_update, target_q))
        return value_update
    update = updated(run.agents, batch)
    if run.feedback is not None:
        feed_back(run.replay, batch.id, update.td_error)
    return update
