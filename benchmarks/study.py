"""A study's computing time, beside what a plain loop would take for the same runs.

    python -m benchmarks.study results/classic-control --json study.json

The loop (`plain_dqn`, one run at a time, uniform replay) trains for a while in each of the study's environments, one
process on every core, as the study had them; its time for the study's steps follows from its speed. The study's own
time has everything in it: other samplers, greedy evaluations, measures, writing. The loop does none of that, so the
ratio is a lower bound. Goal environments are held against the environment they are made of.
"""

import multiprocessing
import statistics
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness, plain_dqn

STARTS = 64
"""Steps before the loop's first update."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one core that an environment of a study took, and that the loop would take."""

    environment: str
    steps: int
    study: float
    loop: float


def speed(env_id: str, steps: int, rounds: int) -> float:
    """Return the plain loop's training steps per second for each of as many processes as there are cores."""
    cores = multiprocessing.cpu_count()
    with multiprocessing.get_context("spawn").Pool(cores, _one_thread) as pool:
        pool.starmap(_rate, [(env_id, 200, seed) for seed in range(cores)])
        return statistics.median(
            rate for r in range(rounds) for rate in pool.starmap(_rate, [(env_id, steps, r + s) for s in range(cores)])
        )


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _rate(env_id: str, steps: int, seed: int) -> float:
    run = plain_dqn.run(seed, steps, learning_starts=STARTS, env_id=env_id)
    return run["updates"] / run["seconds"]


def plain_id(env_id: str) -> str:
    """Return the environment that the loop trains in: Gymnasium's own for a goal environment."""
    plain = {"replaylab/MountainCarGoal-v0": "MountainCar-v0", "replaylab/AcrobotGoal-v0": "Acrobot-v1"}
    return plain.get(env_id, env_id)


def costs(folder: Path, steps: int, rounds: int) -> list[Cost]:
    """Return the costs, one for each environment of a finished study."""
    from replaylab.study import Study

    study = Study.from_folder(folder)
    measured, rates = [], {}
    for environment in study.spec.environments:
        here = [(p, study.record(f"timing/{p.id}")) for p in study.present if p.environment == environment]
        timed = [(p, timing["seconds"]) for p, timing in here if timing]  # a kill may have lost one
        times = [seconds for _, seconds in timed]
        work = sum(p.steps * len(p.seeds) for p, _ in timed)
        plain = plain_id(environment)
        rates[plain] = rates.get(plain) or speed(plain, steps, rounds)
        measured.append(Cost(environment, work, sum(times), work / rates[plain]))
    return measured


def main() -> None:
    parser = harness.parser(__doc__, 3, writes_json=True)
    parser.add_argument("folder", type=Path, help="a finished study's results, budget in steps")
    parser.add_argument("--steps", type=int, default=2_000, help="of the loop, in each process and round")
    options = parser.parse_args()

    measured = costs(options.folder, options.steps, options.rounds)
    measured.append(
        Cost("all", sum(c.steps for c in measured), sum(c.study for c in measured), sum(c.loop for c in measured))
    )
    print(f"{'environment':<30}{'steps':>14}{'study, core-hours':>20}{'loop, core-hours':>18}{'ratio':>8}")
    for c in measured:
        print(f"{c.environment:<30}{c.steps:>14,}{c.study / 3600:>20.2f}{c.loop / 3600:>18.2f}{c.loop / c.study:>8.0f}")
    harness.write_json(options.json, {"costs": [vars(c) for c in measured]})


if __name__ == "__main__":
    main()
