"""Learning by Stable-Baselines3's algorithms with its own buffers and with ours, over seeds.

    python -m benchmarks.sb3_learning --processes 2 --rows sb3_learning.jsonl

SAC on Pendulum-v1 (20,000 steps), DQN on CartPole-v1 (50,000, the settings of rl-zoo3), and DQN with goals in hindsight
on the library's BitFlippingEnv of 12 bits (10,000). Seeds are paired: a seed begins with the same weights and the same
environment for all. Each finished run is a row of a file, so that a command that was stopped continues where it was.
"""

import json
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from stable_baselines3 import DQN, SAC, HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.evaluation import evaluate_policy

from benchmarks import harness
from replaylab.integrations.sb3 import PrioritizedDQN, PrioritizedSAC, ReplayLabBuffer
from replaylab.replay import Prioritized

THEIRS = "the library's"
EPISODES = 20
"""Of the evaluation at the end, without exploration."""


def reached(achieved: Any, desired: Any, info: Any) -> Any:  # noqa: ARG001
    return (achieved == desired).all(-1)


def bits() -> BitFlippingEnv:
    return BitFlippingEnv(n_bits=12, continuous=False)


@dataclass(frozen=True)
class Task:
    """A task, and the algorithm that learns it.

    Attributes:
        env: A name, or a function that makes one.
        steps: Environment steps.
        settings: Arguments of every contestant's algorithm.
        contestants: Name → algorithm and its further arguments.
    """

    env: str | Callable[[], Any]
    steps: int
    settings: dict[str, Any]
    contestants: dict[str, tuple[type, dict[str, Any]]]


BATCH = {"sampler": Prioritized(normalize="batch")}
GOALS = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
OURS = {"replay_buffer_class": ReplayLabBuffer}
TASKS = {
    "Pendulum-v1": Task(
        "Pendulum-v1",
        20_000,
        {"policy": "MlpPolicy", "learning_rate": 1e-3},
        {
            THEIRS: (SAC, {}),
            "ours, uniform": (SAC, OURS),
            "ours, prioritized": (PrioritizedSAC, {"replay_buffer_kwargs": BATCH}),
        },
    ),
    "CartPole-v1": Task(
        "CartPole-v1",
        50_000,
        {
            "policy": "MlpPolicy",
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
        {
            THEIRS: (DQN, {}),
            "ours, uniform": (DQN, OURS),
            "ours, prioritized": (PrioritizedDQN, {"replay_buffer_kwargs": BATCH}),
        },
    ),
    "12 bits": Task(
        bits,
        10_000,
        {
            "policy": "MultiInputPolicy",
            "learning_rate": 2e-3,
            "train_freq": 1,
            "learning_starts": 100,
            "exploration_final_eps": 0.02,
            "target_update_interval": 100,
            "buffer_size": 100_000,
        },
        {
            THEIRS: (DQN, {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": GOALS}),
            "ours, uniform": (
                DQN,
                OURS | {"replay_buffer_kwargs": GOALS | {"compute_terminated": "stored"}},
            ),
            "ours, ends recomputed": (DQN, OURS | {"replay_buffer_kwargs": GOALS | {"compute_terminated": reached}}),
            "ours, prioritized": (
                PrioritizedDQN,
                {"replay_buffer_kwargs": GOALS | BATCH | {"compute_terminated": reached}},
            ),
        },
    ),
}


def trained(task: str, contestant: str, seed: int, steps: int) -> dict[str, Any]:
    """Return the row of one run."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    asked = TASKS[task]
    kind, options = asked.contestants[contestant]
    before = time.process_time()
    env = make_vec_env(asked.env, n_envs=1, seed=seed)
    model = kind(env=env, seed=seed, device="cpu", **asked.settings | options).learn(steps)
    taken = time.process_time() - before
    returns = env.envs[0].get_episode_rewards()  # type: ignore[attr-defined]
    final, _ = evaluate_policy(model, make_vec_env(asked.env, n_envs=1, seed=1_000 + seed), EPISODES)
    figures = {"final": float(final), "during": float(np.mean(returns)), "processor_seconds": taken}
    return {"task": task, "contestant": contestant, "seed": seed, "steps": steps} | figures


def key(row: dict[str, Any]) -> tuple[str, str, int, int]:
    return row["task"], row["contestant"], row["seed"], row["steps"]


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the runs that are finished; a last line that was cut off is none."""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            print(f"{path}: a line that is no row is left out")


def table(results: list[dict[str, Any]]) -> str:
    """Return every contestant's mean, and the paired difference to the library's own with its 95 % interval."""
    lines = [f"{'':14}{'':24}{'final':>9}{'difference':>26}{'during':>10}{'difference':>26}{'core min':>10}"]
    for task in dict.fromkeys(row["task"] for row in results):
        by_name: dict[str, dict[int, dict[str, Any]]] = {}
        for row in results:
            if row["task"] == task:
                by_name.setdefault(row["contestant"], {})[row["seed"]] = row
        for name, runs in by_name.items():
            line = f"{task:14}{name:24}"
            for figure in ("final", "during"):
                line += f"{np.mean([run[figure] for run in runs.values()]):9.2f}"
                line += f"{_difference(runs, by_name.get(THEIRS, {}), figure):>26}"
            lines.append(f"{line}{sum(run['processor_seconds'] for run in runs.values()) / 60:10.1f}")
    return "\n".join(lines)


def _difference(mine: dict[int, Any], library: dict[int, Any], figure: str) -> str:
    pairs = [mine[seed][figure] - library[seed][figure] for seed in mine if seed in library]
    if mine is library or len(pairs) < 2:
        return ""
    half = float(stats.t.ppf(0.975, len(pairs) - 1) * np.std(pairs, ddof=1) / len(pairs) ** 0.5)
    return f"{np.mean(pairs):.2f} ({np.mean(pairs) - half:.2f} to {np.mean(pairs) + half:.2f})"


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="instead of those of each task, as a smoke test")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=Path("benchmarks/results/sb3_learning.jsonl"))
    asked = parser.parse_args()
    asked.rows.parent.mkdir(parents=True, exist_ok=True)
    wanted = [
        (task, contestant, seed, asked.steps or TASKS[task].steps)
        for seed in range(asked.seeds)  # so that what is stopped has whole seeds
        for task in asked.tasks
        for contestant in TASKS[task].contestants
    ]
    done = {key(row) for row in rows(asked.rows)}
    left = [job for job in wanted if job not in done]
    print(f"{len(wanted) - len(left)} of {len(wanted)} runs are there", flush=True)
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        for run in as_completed([pool.submit(trained, *job) for job in left]):
            row = run.result()
            with asked.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    print(table([row for row in rows(asked.rows) if key(row) in wanted]))


if __name__ == "__main__":
    main()
