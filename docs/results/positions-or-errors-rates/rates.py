"""Write the best learning rate of each arm and task, from the pilot, into `study.toml`.

    python docs/results/positions-or-errors-rates/rates.py results/positions-or-errors-rates-pilot

The best rate has the largest mean return over training, on the mean of the pilot's seeds.
"""

import re
import sys
from pathlib import Path

from replaylab.study import Study

STUDY = Path(__file__).parent / "study.toml"
BEGIN, END = "# Written by rates.py: begin.", "# Written by rates.py: end."
RATE = re.compile(r"learning_rate = [\d.e-]+")


def best_rates(study: Study) -> dict[tuple[str, str], str]:
    """Return for each environment and strategy the learning rate with the largest return."""
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for curve in study.curves("eval/mean_reward"):
        environment, learner, strategy = curve.key
        entry = (float(curve.of_runs("area").mean()), learner.partition("learning_rate-")[2])
        best[environment, strategy] = max(entry, best.get((environment, strategy), entry))
    return {place: rate for place, (_, rate) in best.items()}


def written(text: str, rates: dict[tuple[str, str], str]) -> str:
    """Return the study file with these rates."""
    before, _, rest = text.partition(BEGIN)
    block, _, after = rest.partition(END)
    tables = block.split("\n[strategies.")[1:]
    for place, (environment, strategy) in enumerate(_cells(tables)):
        tables[place] = RATE.sub(f"learning_rate = {float(rates[environment, strategy])}", tables[place])
    return f"{before}{BEGIN} From the pilot.\n" + "".join(f"\n[strategies.{table}" for table in tables) + END + after


def _cells(tables: list[str]) -> list[tuple[str, str]]:
    """Return environment and arm of each strategy: `even-cartpole` is the arm `even`."""
    return [(re.findall(r'environments = \["(.+)"\]', table)[0], table.split("-")[0]) for table in tables]


if __name__ == "__main__":
    STUDY.write_text(written(STUDY.read_text(), best_rates(Study.from_folder(sys.argv[1]))))
    print(STUDY)
