"""The training loop."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from replaylab.arguments import Unfit, flag, function, instance, mapping, optional, place, takes, text, tuple_of, whole
from replaylab.errors import ConfigError
from replaylab.learners.api.finite import check_obs, check_step
from replaylab.learners.api.protocols import (
    Agents,
    EnvSampler,
    Learner,
    Obs,
    Step,
    StoringLearner,
    TargetAgents,
    Update,
    ValueAgents,
    ValueUpdate,
    each,
    reducible_loss,
    target_values,
)
from replaylab.learners.evaluation.greedy import Evaluation
from replaylab.learners.evaluation.held_out import HeldOut
from replaylab.learners.evaluation.value_error import OptimumDistance
from replaylab.learners.metrics.metrics import Metrics
from replaylab.learners.training import checkpoint
from replaylab.learners.training import env_state as continuing
from replaylab.learners.training.batch_measures import Measuring
from replaylab.learners.training.env_hindsight import EnvHindsight
from replaylab.learners.training.metrics_recorder import OnMetrics, Recorder
from replaylab.learners.training.state import Job, Run, states_of, true_next_obs
from replaylab.replay import Sampler, Transform
from replaylab.replay.data.arrays import MOST

Look = Callable[[Any, Sequence[int]], npt.NDArray[np.float64]]
"""What an evaluation tells besides returns: agents and their seeds → a number for each, (R,)."""

PROGRESS_PERIOD = 100
"""Environment steps between two calls of the `progress` function."""

COUNT = optional(whole())
FUNCTION = optional(function("what has happened"))
FOLDER = optional(place("a folder"))


def _learner(value: Any) -> Learner:
    """Settings of a learner."""
    if isinstance(value, type) or not isinstance(value, Learner):
        names = [name for name in vars(Learner) if not name.startswith("_") and not hasattr(value, name)]
        raise Unfit("a learner such as DQN()" + (f", with {', '.join(names)}" if names else ""))
    return value


def _seeds(value: Any) -> tuple[int, ...]:
    """Seeds, all different."""
    rule = "one or more different whole numbers from 0 on"
    seeds = tuple_of(whole(0, sys.maxsize), rule, 1)(value)
    if len(set(seeds)) < len(seeds):
        raise Unfit(rule)
    return seeds


@takes(
    env_id=text,
    learner=_learner,
    sampler=instance((Sampler, EnvSampler), "a sampler such as Uniform()"),
    seeds=_seeds,
    total_steps=COUNT,
    total_episodes=COUNT,
    transforms=tuple_of(instance((Transform, EnvHindsight), "a transform"), "a list or tuple of transforms"),
    env_options=optional(mapping),
    eval_every=COUNT,
    eval_episodes=whole(most=MOST),
    held_out=whole(0, MOST),
    value_error=flag,
    log_every=whole(),
    visits=flag,
    measure_every=COUNT,
    on_metrics=FUNCTION,
    on_end=FUNCTION,
    progress=FUNCTION,
    save=FOLDER,
    save_every=COUNT,
    resume=FOLDER,
)
def train(
    env_id: str,
    learner: Learner,
    sampler: Sampler | EnvSampler,
    seeds: Sequence[int],
    total_steps: int | None = None,
    *,
    total_episodes: int | None = None,
    transforms: Sequence[Transform | EnvHindsight] = (),
    env_options: Mapping[str, Any] | None = None,
    eval_every: int | None = 5_000,
    eval_episodes: int = 10,
    held_out: int = 0,
    value_error: bool = False,
    log_every: int = 1_000,
    visits: bool = False,
    measure_every: int | None = None,
    autoreset_mode: str | AutoresetMode | None = None,
    on_metrics: OnMetrics | None = None,
    on_end: Callable[[list[int], Agents], None] | None = None,
    progress: Callable[[int], None] | None = None,
    save: str | Path | None = None,
    save_every: int | None = None,
    resume: str | Path | None = None,
) -> Metrics:
    """Train one learner for each seed, all together, and return what was measured.

    Replica r equals a run with ``seeds=[seeds[r]]``, up to the rounding of floating-point sums; two runs
    that differ in `sampler` only start from the same weights and episodes and explore by the same draws.
    One turn of the loop is one step of every environment, except in NEXT_STEP mode, where a turn may only
    start an episode: it counts in `total_steps` and learns, but stores nothing.

    The budget is in steps or in episodes, and so is everything that is counted along with it: progress, `eval_every`,
    `log_every`, `save_every`, and the rows' ``step``. A replica that has finished its episodes leaves the population,
    which goes on with the others in smaller arrays: it costs nothing more but one copy of what the others have.

    Args:
        env_id: A Gymnasium environment that the learner can handle.
        learner: The settings.
        sampler: What to replay; `EnvOracle` is the oracle by the environment's own exact values.
        seeds: One whole number for each of the R replicas, all different.
        total_steps: Environment steps of each replica.
        total_episodes: Instead of `total_steps`: episodes of each replica.
        transforms: What a drawn step becomes; `EnvHindsight` is hindsight with the environment's own functions.
        env_options: For the environment's constructor.
        eval_every: Between two greedy evaluations, with one more at the end; None: no evaluation.
        eval_episodes: Episodes of an evaluation.
        held_out: States whose values each evaluation tells, see `HeldOut`; 0: none.
        value_error: Whether each evaluation tells how far the values are from the optimal ones, see `OptimumDistance`;
            for environments that are a table.
        log_every: Between two looks at the update, the batch and the exploration.
        visits: Whether to count in which of its states (Discrete observations) each replica acts.
        measure_every: Environment steps, whatever the budget counts, between two rounds of the measures of what is
            replayed; None: they are not taken. They change nothing else; ``docs/laboratory/measures.md`` has
            their cost.
        autoreset_mode: How the environments start new episodes; None: as `make_vector_env` chooses.
        on_metrics: Called after each look and each evaluation; see `Recorder`.
        on_end: Called with seeds whose budget is used up and their agents.
        progress: Called every 100 steps, and at the end, with how far the slowest replica is.
        save: Folder for checkpoints, and at the end for what each agent has learned.
        save_every: Between two checkpoints, counted by the slowest replica; None: only the agents, at the end.
        resume: Folder of a checkpoint to go on from, bit for bit; all other arguments must be as they were.

    Returns:
        Rows of ``rollout/ep_rew`` and ``rollout/ep_len`` for each episode; ``eval/mean_reward``,
        ``eval/mean_ep_length`` and, with `held_out`, ``eval/held_out_q`` (mean over the states of max_a Q(s, a)), with
        `value_error`, ``eval/value_error`` for each evaluation; ``rollout/exploration_rate``, ``train/loss``,
        ``train/q_mean|min|max``, ``train/td_error_mean|median|max|std|p25|p75|p95`` (of |δ|), ``train/updates`` (online
        and from batches), ``replay/transitions_replayed``, ``replay/age_mean`` (steps since the drawn rows were stored)
        and ``replay/weight_mean`` for each look; and the measures of ``docs/laboratory/measures.md``.

    Raises:
        ConfigError: An argument is out of its range, or the environment does not fit the learner.
        NonFiniteError: The environment gave a reward or an observation that is NaN or infinite.
        SnapshotError: There is nothing to go on from in `resume`, or another run.
    """
    seeds = list(seeds)
    if save_every is not None and save is None:
        raise ConfigError("`save_every` needs a folder; pass save=..., or leave it out")
    if save is not None:
        checkpoint.check_folder(save)
    job = Job(
        env_id,
        learner,
        sampler,
        total_steps,
        total_episodes,
        tuple(transforms),
        dict(env_options or {}),
        autoreset_mode,
        measure_every,
    )
    measuring = None if measure_every is None else Measuring(measure_every, len(seeds))
    recorder = Recorder(seeds, log_every, on_metrics, states_of(job) if visits else 0, measuring)
    run = Run(job, seeds) if resume is None else checkpoint.load(resume, job, recorder)
    if save_every is not None:
        continuing.check(run.env, env_id, "`save_every`")
    if total_episodes is not None and len(seeds) > 1:
        continuing.check(run.env, env_id, "a budget of episodes for several seeds at once")
    if (held_out or value_error) and not isinstance(run.agents, ValueAgents):
        told = "held_out" if held_out else "value_error"
        raise ConfigError(f"`{told}` tells of Q(s, a), which {type(learner).__name__} does not have; leave it out")
    evaluation = Evaluation(env_id, eval_episodes, env_options=env_options)
    looks: dict[str, Look] = {}
    if held_out and eval_every:
        looks["eval/held_out_q"] = HeldOut(env_id, run.seeds, held_out, env_options)
    if value_error:
        looks["eval/value_error"] = OptimumDistance(env_id, learner, env_options)
    next_save = _after(run, save_every or 1)
    check_obs(run.obs, env_id, run.seeds, "its first reset" if resume is None else f"step {run.clock.steps:,}")

    while run.seeds:
        turn(run, recorder)
        clock = run.clock
        _evaluate(run, recorder, evaluation, looks, eval_every)
        over = clock.over
        if progress is not None and (clock.steps % PROGRESS_PERIOD == 0 or over.all()):
            progress(int(clock.now.min()))
        if over.any():
            ended = [seed for seed, here in zip(run.seeds, over, strict=True) if here]
            recorder.visited(clock, over)
            if on_end is not None:
                on_end(ended, run.agents_of(over))
            if save is not None:
                checkpoint.save_agents(save, run.agents_of(over), ended)
            if over.all():
                break
            run = run.part(~over)
            recorder.keep(~over)
        if save is not None and save_every is not None and run.clock.now.min() >= next_save:
            checkpoint.save(save, run, recorder)
            next_save = _after(run, save_every)
    return recorder.table()


def turn(run: Run, recorder: Recorder) -> None:
    """Take one step in every environment, and learn."""
    learner, agents, clock, env = run.job.learner, run.agents, run.clock, run.env
    clock.step()
    agents.set_progress(clock.progress)
    obs = run.obs
    action = agents.act(each(lambda part: part[:, None], obs), explore=True)[:, 0]
    run.observe_waiting(action)

    next_obs, reward, terminated, truncated, infos = env.step(action)
    ended, final_obs = terminated | truncated, infos.get("final_obs")
    check_step(reward, next_obs, final_obs, ended, run.job.env_id, run.seeds, clock.steps)
    ids = _store(run, action, next_obs, reward, terminated, truncated, final_obs)
    clock.end(ended)
    recorder.step(clock, reward, ended, ids)
    if recorder.visits.size:
        recorder.visit(obs - run.first_state, ids)
    run.obs = next_obs
    if run.disabled and ended.any():
        run.obs, _ = env.reset(options={"reset_mask": ended})
        check_obs(run.obs, run.job.env_id, run.seeds, f"the reset after step {clock.steps:,}")

    if learner.online:
        true_next = true_next_obs(next_obs, final_obs, ended)
        run.observe(Step(obs, action, reward, true_next, terminated, truncated, action, where=ids >= 0))
        recorder.online()
    if clock.steps >= learner.learning_starts and clock.steps % learner.train_period == 0:
        for _ in range(learner.gradient_steps if learner.batch_size else 0):
            _replay(run, recorder)
        recorder.look(clock, agents.exploration_metrics())
        recorder.measure(run)


def _store(
    run: Run,
    action: npt.NDArray[Any],
    next_obs: Obs,
    reward: npt.NDArray[Any],
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
    final_obs: Any,
) -> npt.NDArray[np.int64]:
    """Store what came of an action, as a learner with a say in it wants it, and return the steps' ids."""
    storing = run.job.learner if isinstance(run.job.learner, StoringLearner) else None
    if storing is not None:
        reward, terminated, truncated = storing.kept(reward, terminated, truncated)
    ids: npt.NDArray[np.int64] = run.buffer.add(
        obs=run.obs,
        action=action,
        reward=reward,
        next_obs=next_obs,
        terminated=terminated,
        truncated=truncated,
        final_obs=final_obs,
    )
    if storing is not None:
        true_next = true_next_obs(next_obs, final_obs, terminated | truncated)
        step = Step(run.obs, action, reward, true_next, terminated, truncated, action, where=ids >= 0)
        storing.after(step, ids, run.agents, run.buffer)
    return ids


def _replay(run: Run, recorder: Recorder) -> None:
    """Learn from one batch of what is stored."""
    batch = run.buffer.sample(run.job.learner.batch_size, progress=run.clock.progress)
    if run.job.feedback == "reducible_loss":
        agents = cast("TargetAgents", run.agents)  # the run made sure
        old = target_values(agents, batch)
        seen = cast("ValueUpdate", agents.update(batch))
        run.buffer.update_priorities(batch.id, reducible_loss(agents, seen, old))
        update: Update = seen
    else:
        update = run.agents.update(batch)
        if run.job.feedback is not None:
            run.buffer.update_priorities(batch.id, update.td_error)
    recorder.update(update, batch)


def _evaluate(
    run: Run, recorder: Recorder, evaluation: Evaluation, looks: Mapping[str, Look], every: int | None
) -> None:
    """Evaluate the replicas that an evaluation is due for; where they progress apart, each by itself."""
    due = run.clock.due(every)
    if every is None or not due.any():
        return
    alone = run.job.total_episodes is not None
    for r in due.nonzero()[0] if alone else [slice(None)]:
        here = np.zeros_like(due)
        here[r] = True
        seeds = [seed for seed, one in zip(run.seeds, here, strict=True) if one]
        number = (int(run.clock.now[here][0]) - 1) // every
        agents = run.agents_of(here)
        reward, length = evaluation(agents, seeds, number)
        found = {"eval/mean_reward": reward, "eval/mean_ep_length": length}
        found |= {name: look(agents, seeds) for name, look in looks.items()}
        recorder.evaluation(run.clock, found, here)


def _after(run: Run, every: int) -> int:
    """Return the next multiple of `every` that the slowest replica comes to."""
    return (int(run.clock.now.min()) // every + 1) * every
