"""How long a report takes, and how large its page is: made-up results of 1,000 runs with all metrics of real ones.

    python -m benchmarks.study_report --folder made --seeds 40

Environments, strategies and rows are those of a study of classic control at 50,000 steps: every run has 40 evaluations,
100 looks at the learner, 20 looks at what is replayed and some 400 episodes. The numbers come from fixed seeds.
"""

import argparse
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from replaylab.study import Spec, Study
from replaylab.study.results.store import write_population

STEPS = 50_000
ENVIRONMENTS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "LunarLander-v3", "Taxi-v4")
STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"type": "online"},
    "uniform": {"type": "uniform"},
    "prioritized": {"type": "prioritized"},
    "combined": {"type": "combined"},
    "rank_based": {"type": "rank_based"},
}
LOOKS = (
    "train/loss",
    "train/q_mean",
    "train/q_min",
    "train/q_max",
    "train/td_error_mean",
    "train/td_error_median",
    "train/td_error_max",
    "train/td_error_std",
    "train/td_error_p25",
    "train/td_error_p75",
    "train/td_error_p95",
    "replay/age_mean",
    "replay/weight_mean",
    "rollout/exploration_rate",
)
MEASURES = (
    "replay/effective_batch_size",
    "replay/gradient_variance",
    "replay/gradient_variance_uniform",
    "replay/same_episode_share",
    "replay/smallest_gap",
    "replay/duplicate_share",
    "replay/autocorrelation_time",
    "replay/row_correlation_excess",
    "replay/energy_distance",
    "replay/law_evenness",
    "replay/weight_effective_size",
    "replay/drawn_age_mean",
    "replay/never_replayed_share",
    "replay/replay_gini",
    "replay/td_error_mean",
    "replay/td_error_median",
    "replay/td_error_max",
    "replay/td_error_std",
    "replay/td_error_percentile",
    "replay/td_error_gap",
    "replay/legacy_correlated_pairs",
)


def spec(seeds: int, environments: int, strategies: int) -> Spec:
    """Return the study that the results pretend to be of."""
    chosen = {
        name: STRATEGIES[name] if name in STRATEGIES else {"type": "prioritized", "alpha": 0.1 + 0.02 * i}
        for i, name in enumerate([*STRATEGIES, *(f"prioritized_{i}" for i in range(strategies))][:strategies])
    }
    return Spec.from_table(
        {
            "name": "made-up",
            "title": f"{environments * strategies * seeds:,} made-up runs",
            "environments": list(ENVIRONMENTS[:environments]),
            "seeds": seeds,
            "population": 10,
            "budget": {"steps": STEPS},
            "evaluation": {"every": STEPS // 40},
            "logging": {"every": STEPS // 100},
            "measures": {"every": STEPS // 20},
            "learners": {"dqn": {"type": "dqn"}},
            "strategies": chosen,
        }
    )


def make(folder: Path, found: Spec) -> Study:
    """Write the made-up results and return their study."""
    study = Study(found, folder)
    study._there.write_records()
    order = list(found.strategies)
    for population in study.populations:
        strategy = order.index(population.strategy)
        runs = [_run(seed, strategy, ENVIRONMENTS.index(population.environment)) for seed in population.seeds]
        columns = {key: np.concatenate([run[key] for run in runs]) for key in runs[0]}
        write_population(study.file_of(population), population, columns, {"python": "3.11.7", "numpy": "2.2.1"})
    return study


def _run(seed: int, strategy: int, environment: int) -> dict[str, Any]:
    """Return one run's rows: a rise to a level of its own, with noise; everything else is a random walk."""
    rng = np.random.default_rng([seed, strategy, environment])
    low, high = ((10.0, 500.0), (-500.0, -90.0), (-200.0, -110.0), (-300.0, 250.0), (-700.0, 8.0))[environment]
    rate = np.exp(rng.normal(1.2 + 0.1 * strategy, 0.4) + 0.3 * np.random.default_rng(seed).normal())
    episodes = np.sort(rng.integers(10, STEPS, size=400))
    grids = {
        **dict.fromkeys(("eval/mean_reward", "eval/mean_ep_length"), np.arange(1, 41) * (STEPS // 40)),
        **dict.fromkeys(("rollout/ep_rew", "rollout/ep_len"), episodes),
        **dict.fromkeys(LOOKS, np.arange(1, 101) * (STEPS // 100)),
        **dict.fromkeys(MEASURES, np.arange(1, 21) * (STEPS // 20)),
    }
    values = {metric: rng.normal(0.1, 1.0, size=len(grid)).cumsum() for metric, grid in grids.items()}
    for metric in ("eval/mean_reward", "rollout/ep_rew"):
        rise = 1.0 - np.exp(-rate * grids[metric] / STEPS) + rng.normal(0, 0.06, size=len(grids[metric]))
        values[metric] = low + (high - low) * rise.clip(0, 1)
    for metric, factor in (("train/updates", 1), ("replay/transitions_replayed", 64 if strategy else 1)):
        grids[metric] = grids["train/loss"]
        values[metric] = factor * np.maximum(grids[metric] - 1_000.0, 0.0)
    sizes = [len(grid) for grid in grids.values()]
    return {
        "seed": np.full(sum(sizes), seed),
        "step": np.concatenate(list(grids.values())),
        "metric": np.repeat(list(grids), sizes),
        "value": np.concatenate([values[metric] for metric in grids]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--environments", type=int, default=5, choices=range(1, 6))
    parser.add_argument("--strategies", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep the results here, and use those that are there")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if (folder / "study.json").is_file():
            study = Study.from_folder(folder)
        else:
            study = make(folder, spec(options.seeds, options.environments, options.strategies))
        wall, processor = time.perf_counter(), time.process_time()
        page = study.report()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        beside = sum(file.stat().st_size for file in folder.rglob("*/*") if file.parent.name in ("figures", "tables"))
        print(f"{study.spec.runs:,} runs: {wall:.1f} s, {processor:.1f} s of the processor")
        print(f"page {page.stat().st_size / 1e6:.2f} MB, files beside it {beside / 1e6:.1f} MB")
        print(f"memory at its highest {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
