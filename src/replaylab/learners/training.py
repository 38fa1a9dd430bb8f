"""The training loop."""

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv

from replaylab.envs import make_vector_env
from replaylab.errors import ConfigError
from replaylab.learners.agents import Agents, Learner
from replaylab.learners.evaluation import Evaluation
from replaylab.learners.exploration import EpsilonGreedy
from replaylab.learners.metrics import Metrics
from replaylab.learners.recorder import OnMetrics, Recorder
from replaylab.learners.streams import Stream, numbers
from replaylab.replay import Constant, ReplayBuffer, Sampler, Schedule

PROGRESS_PERIOD = 100
"""Steps between two calls of the `progress` function."""


def train(
    env_id: str,
    learner: Learner,
    sampler: Sampler,
    seeds: Sequence[int],
    total_steps: int,
    *,
    eval_every: int | None = 5_000,
    eval_episodes: int = 10,
    log_every: int = 1_000,
    autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    on_metrics: OnMetrics | None = None,
    progress: Callable[[int], None] | None = None,
) -> Metrics:
    """Train one learner for each seed, all together, and return what was measured.

    Replica r equals a run with ``seeds=[seeds[r]]``, up to the rounding of floating-point sums; two runs
    that differ in `sampler` only start from the same weights and episodes and explore by the same draws.
    One turn of the loop is one step of every environment, except in NEXT_STEP mode, where a turn may only
    start an episode: it counts in `total_steps` and learns, but stores nothing.

    Args:
        env_id: A Gymnasium environment with Box observations and Discrete actions.
        learner: The settings.
        sampler: What to replay.
        seeds: One whole number for each of the R replicas, all different.
        total_steps: Environment steps of each replica.
        eval_every: Steps between two greedy evaluations, with one more at the end; None: no evaluation.
        eval_episodes: Episodes of an evaluation.
        log_every: Steps between two looks at the update, the batch and ε.
        autoreset_mode: How the environments start new episodes.
        on_metrics: Called after each look and each evaluation with the step and the new numbers, each (R,).
        progress: Called every 100 steps, and at the end, with the steps done.

    Returns:
        Rows of ``rollout/ep_rew`` and ``rollout/ep_len`` for each episode; ``eval/mean_reward`` and
        ``eval/mean_ep_length`` for each evaluation; ``rollout/exploration_rate``, ``train/loss``,
        ``train/q_mean``, ``train/td_error_mean|median|max|std`` (of |δ|), ``train/updates``,
        ``replay/transitions_replayed``, ``replay/age_mean`` (steps since the drawn rows were stored) and
        ``replay/weight_mean`` for each look.

    Raises:
        ConfigError: An argument is out of its range, or the environment does not fit the learner.
    """
    seeds = list(seeds)
    periods = {"eval_every": eval_every, "eval_episodes": eval_episodes, "log_every": log_every}
    _check_arguments(seeds, {"total_steps": total_steps, **periods})
    env = make_vector_env(env_id, len(seeds), autoreset_mode=autoreset_mode)
    agents = _agents(env_id, env, learner, seeds)
    first_action = int(getattr(env.single_action_space, "start", 0))
    explore = EpsilonGreedy(seeds)
    evaluate = None if eval_every is None else Evaluation(env_id, seeds, eval_episodes)
    buffer = ReplayBuffer.for_env(env, learner.capacity, replicas=len(seeds), sampler=sampler, seed=seeds)
    epsilon = learner.epsilon if isinstance(learner.epsilon, Schedule) else Constant(learner.epsilon)
    recorder = Recorder(seeds, log_every, on_metrics)

    obs, _ = env.reset(seed=[numbers(seed, Stream.ENV_RESET, 1)[0] for seed in seeds])  # type: ignore[arg-type]
    for step in range(1, total_steps + 1):
        elapsed = step / total_steps
        agents.epsilon = epsilon(elapsed)
        action = explore(agents.q_values(obs[:, None])[:, 0], agents.epsilon)
        next_obs, reward, terminated, truncated, infos = env.step(action + first_action)
        ids = buffer.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            final_obs=infos.get("final_obs"),
        )
        recorder.step(step, reward, terminated | truncated, ids)
        obs = next_obs
        if env.metadata["autoreset_mode"] is AutoresetMode.DISABLED and (terminated | truncated).any():
            obs, _ = env.reset(options={"reset_mask": terminated | truncated})

        if step >= learner.learning_starts and step % learner.train_period == 0:
            for _ in range(learner.gradient_steps):
                batch = buffer.sample(learner.batch_size, progress=elapsed)
                update = agents.update(batch)
                if sampler.wants_feedback:
                    buffer.update_priorities(batch.id, update.td_error)
                recorder.update(step, update, batch, epsilon(elapsed))
        if evaluate is not None and _due(step, eval_every, total_steps):
            recorder.evaluation(step, *evaluate(agents))
        if progress is not None and _due(step, PROGRESS_PERIOD, total_steps):
            progress(step)
    return recorder.table()


def _due(step: int, period: int | None, total_steps: int) -> bool:
    return period is not None and (step % period == 0 or step == total_steps)


def _check_arguments(seeds: list[int], counts: dict[str, int | None]) -> None:
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"`seeds` must be one or more different whole numbers, but got {seeds}")
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError(f"`{name}` must be at least 1, but got {value}")


def _agents(env_id: str, env: VectorEnv[Any, Any, Any], learner: Learner, seeds: Sequence[int]) -> Agents:
    try:
        return learner.agents(env.single_observation_space, env.single_action_space, seeds)
    except ConfigError as error:
        raise ConfigError(f"{type(learner).__name__} cannot learn {env_id}: {error}") from error
