"""Write the exponents and schedules of `positions-or-errors` or `positions-or-errors-minatar` into its study file.

    python docs/results/positions-or-errors/doses.py docs/results/positions-or-errors/study.toml results/STUDY-pilot

For each environment and loss: if the pilot drew by bins, the exponent at which draws by TD error leave as many
effective rows as bins by TD error with exponent 0.6 do; and the share of terminated ends that draws by TD error with
exponent 0.6 had at each progress.
Only measures of batches are read, no returns.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replaylab.study import Study
from replaylab.study.analysis.comparisons import Curve

BEGIN, END = "# Written by doses.py: begin.", "# Written by doses.py: end.\n"
ROWS, ENDS = "replay/effective_batch_size", "replay/terminated_share"
POINTS = 10
"""Points of a schedule."""

Floats = NDArray[np.float64]


def matching_exponent(rows: Mapping[float, float], wanted: float) -> float:
    """Return the exponent at which so many effective rows are left, by a parabola for their logarithm.

    Args:
        rows: Effective rows by exponent, of at least three; the parabola is that of least squares.
        wanted: Effective rows to match.

    Raises:
        ValueError: The parabola is not above at the smallest exponent, or nowhere below up to the largest.
    """
    exponents = sorted(rows)
    parabola = np.polyfit(exponents, np.log([rows[exponent] for exponent in exponents]), 2)
    grid = np.linspace(exponents[0], exponents[-1], 10_001)
    below = np.polyval(parabola, grid) <= np.log(wanted)
    if below[0] or not below.any():
        left = ", ".join(f"{exponent:g}: {rows[exponent]:.1f}" for exponent in exponents)
        raise ValueError(
            f"effective rows must fall from above {wanted:.1f} to below it as the exponent grows, but are {left}; "
            "pilot other exponents, or more seeds"
        )
    return float(grid[below.argmax()])


def share_of_ends(td: Curve, even: Curve) -> tuple[list[float], list[float]]:
    """Return a schedule for EpisodeEnds: progress, and the share s that draws as many ends as draws by TD error.

    Even draws have L/N ends, so s + (1 − s)·L/N must be the share of TD error; both are means of the seeds, in equal
    parts of the run.
    """
    every = td.steps[1] - td.steps[0]
    progress = (td.steps - every / 2) / td.steps[-1]
    part = np.minimum((progress * POINTS).astype(int), POINTS - 1)

    def mean(curve: Curve) -> Floats:
        values = curve.values.mean(axis=0)
        return np.array([values[part == k].mean() for k in np.unique(part)])

    wanted, without = mean(td), mean(even)
    share = np.clip((wanted - without) / (1.0 - without), 0.0, 1.0)
    centers = [float(progress[part == k].mean()) for k in np.unique(part)]
    return [round(center, 4) for center in centers], [round(float(s), 5) for s in share]


def strategies(study: Study) -> str:
    """Return the strategies of matched TD error and matched ends, as part of a study file."""
    rows = {curve.key: float(np.exp(np.log(curve.of_runs("area")).mean())) for curve in study.curves(ROWS)}
    ends = {curve.key: curve for curve in study.curves(ENDS)}
    tables = []
    for environment, learner in dict.fromkeys(key[:2] for key in rows):
        car = "-car" if learner.endswith("-car") else ""
        if (position := (environment, learner, f"position{car}")) in rows:
            left = {
                float(alpha[1]): value
                for (*place, strategy), value in rows.items()
                if place == [environment, learner] and (alpha := re.fullmatch(rf"td{car}\.alpha-([\d.]+)", strategy))
            }
            left[0.0] = rows[environment, learner, f"even{car}"]
            exponent = round(matching_exponent(left, rows[position]), 3)
            draws = ["prioritized", f"alpha = {exponent}", "beta = 0.0", "stratified = false"]
            tables.append(_table("TD error", environment, learner, draws))
        progress, values = share_of_ends(
            ends[environment, learner, f"td{car}.alpha-0.6"], ends[environment, learner, f"even{car}"]
        )
        schedule = f'{{ type = "table", progress = {progress}, values = {values} }}'
        tables.append(_table("ends", environment, learner, ["episode_ends", f"share = {schedule}"]))
    return "\n".join(tables)


def _table(arm: str, environment: str, learner: str, options: Sequence[str]) -> str:
    name = re.sub(r"-v\d+$", "", environment.removeprefix("replaylab/")).lower()
    budget = ["budget = { steps = 80_000 }"] if learner.endswith("-car") else []
    lines = [
        f"[strategies.matched-{arm.split()[0].lower()}-{name}-{learner}]",
        f'title = "matched {arm} ({environment}, {learner})"',
        f'type = "{options[0]}"',
        *options[1:],
        f'environments = ["{environment}"]',
        f'learners = ["{learner}"]',
        *budget,
        f'factors = {{ arm = "matched {arm}" }}',
    ]
    return "\n".join(lines) + "\n"


def written(text: str, tables: str, comment: str) -> str:
    """Return a study file with these strategies between the two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN} {comment}\n\n{tables}\n{END}{after}"


if __name__ == "__main__":
    study = Path(sys.argv[1])
    study.write_text(written(study.read_text(), strategies(Study.from_folder(sys.argv[2])), "From the pilot."))
