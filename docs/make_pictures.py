"""Make the pictures of README and of pages outside `results`: `make pictures`.

* ``speed.svg``: two tables of the page on benchmarks, which hold figures of ``make bench`` and ``make bench-training``.
* ``visits.svg``: the map that ``examples/cliff_walking.py`` draws, of 30 seeds.
* ``report.webp``: the top of the report of the study ``quick``, as a browser shows it.
* ``own_loop.svg``: learning curves of the loops of the guide "Your own training loop".
* ``episode_ends.svg``: a table of the study ``episode-ends``.
* ``positions_or_errors.svg``: tables of the study ``positions-or-errors``.
"""

import csv
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import own_loop
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from PIL import Image

from replaylab.plotting.palette import BASELINE, HUES
from replaylab.plotting.svg import style
from replaylab.study import Study
from replaylab.watch import save

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"


def table_of(page: str, head: str) -> list[list[str]]:
    """Return the cells of a page's table that begins so, without its head."""
    lines = (head + page.split(head)[1].split("\n\n")[0]).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def operations(page: str) -> list[tuple[str, str, float]]:
    """Return the operations, the fastest peer of each, and how many times as long it takes."""
    rows = []
    for operation, peers, times, _ in table_of(page, "| | fastest peer |"):
        name = operation.replace("`", "").split(";")[0]
        rows.append((name, re.split("[;,]", peers)[0], float(re.search(r"[\d.]+", times)[0])))
    return sorted(rows, key=lambda row: row[2])


def speed() -> Figure:
    """Draw the time of peers at single operations, and the speed of training, as bars."""
    page = (DOCS / "explanation" / "benchmarks.md").read_text()
    times_by_operation = operations(page)
    training = [(name, float(uniform.strip("×"))) for name, uniform, _ in table_of(page, "| replaylab trains |")]
    with style():
        figure = Figure(figsize=(900 / 72, 360 / 72), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        bars = left.barh(
            [name for name, _, _ in times_by_operation],
            [times for _, _, times in times_by_operation],
            color=HUES[0][0],
            height=0.65,
        )
        left.bar_label(bars, [f"{times:g}× {peer}" for _, peer, times in times_by_operation], padding=4)
        left.axvline(1.0, color="#555555", lw=1)
        left.set(
            xlim=(0, 1.3 * times_by_operation[-1][2]), xlabel="time of the fastest other library, over replaylab's"
        )
        left.set_title("The buffer")
        names = [name.replace(" in ", "\nin ").removesuffix(", all together") for name, _ in training]
        bars = right.barh(names, [times for _, times in training], color=HUES[1][0], height=0.5)
        right.bar_label(bars, [f"{times:g}×" for _, times in training], padding=4)
        right.invert_yaxis()
        right.set(xlim=(0, 1.2 * training[-1][1]), xlabel="steps per second, over\none run of a plain PyTorch loop")
        right.set_title("Training on CartPole, uniform replay")
        for ax in (left, right):
            ax.grid(axis="y", visible=False)
        return figure


CHOICES = {
    "even": ("even", BASELINE[0]),
    "tape": ("steps that another seed chose by TD error", HUES[3][0]),
    "td": ("by TD error", HUES[1][0]),
    "weighted": ("by TD error, with importance weights", HUES[4][0]),
    "position": ("by position in the episode", HUES[0][0]),
    "ends": ("even, and more episode ends", HUES[2][0]),
}
"""Names of the draws of `episode-ends`, and their colors."""

TASKS = {
    "CartPole-v1": "CartPole",
    "replaylab/NoisyRewards-v0": "noisy CartPole",
    "Acrobot-v1": "Acrobot",
    "replaylab/AcrobotGoal-v0": "Acrobot with goals",
    "MountainCar-v0": "MountainCar",
}
ARMS = {
    "even": ("even", BASELINE[0]),
    "position": ("bins by TD error", HUES[0][0]),
    "within": ("steps of a bin by TD error", HUES[3][0]),
    "td": ("both by TD error", HUES[1][0]),
    "matched-td": ("both, as many effective rows as bins", HUES[4][0]),
    "matched-ends": ("even, with as many terminated ends", HUES[2][0]),
}
"""Names of the draws of `positions-or-errors`, and their colors."""

MARKERS = {"huber": "o", "squared": "s"}
"""Markers of the two losses."""


def intervals(
    study: str, arms: Iterable[str], table: str, **wanted: str
) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Return interquartile means and interval ends of a table's rows, by environment, loss and arm."""
    bounds = {}
    with (DOCS / f"results/{study}/tables/{table}.csv").open() as file:
        for row in csv.DictReader(file):
            if wanted.items() <= row.items():
                arm = max((arm for arm in arms if row["strategy"].startswith(arm)), key=len)
                cell = row["environment"], row["learner"].removesuffix("-car"), arm
                bounds[cell] = float(row["iqm"]), float(row["low"]), float(row["high"])
    return bounds


def legend_above(figure: Figure, axes: Axes) -> None:
    """Name the colours in one row above all panels."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)


def ends_drawn() -> Figure:
    """Draw how often draws have the last step of an episode, as a multiple of even draws."""
    shares = intervals("episode-ends", CHOICES, "measures", metric="replay/end_share")
    with style():
        figure = Figure(figsize=(900 / 72, 300 / 72), layout="constrained")
        axes = figure.subplots()
        for k, choice in enumerate(CHOICES):
            title, color = CHOICES[choice]
            times = [
                sum(shares[task, loss, choice][0] / shares[task, loss, "even"][0] for loss in ("huber", "squared")) / 2
                for task in TASKS
            ]
            heights = [place + 0.12 * (k - 2.5) for place in range(len(TASKS))]
            axes.plot(times, heights, "o", color=color, label=title, ms=7)
        axes.set_yticks(range(len(TASKS)), TASKS.values())
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("episode ends among the drawn steps, over those of even draws")
        legend_above(figure, axes)
        return figure


def scores() -> Figure:
    """Draw the scores over training of each arm against its effective rows, a panel for each task."""
    levels = intervals("positions-or-errors", ARMS, "levels", measure="area")
    rows = intervals("positions-or-errors", ARMS, "measures", metric="replay/effective_batch_size")
    study = tomllib.loads((DOCS / "results/positions-or-errors/study.toml").read_text())
    with style():
        figure = Figure(figsize=(900 / 72, 330 / 72), layout="constrained")
        panels = figure.subplots(1, len(TASKS), sharex=True, sharey=True)
        for axes, (task, name) in zip(panels, TASKS.items(), strict=True):
            low, high = study["scores"][task]["low"], study["scores"][task]["high"]
            for arm, (title, color) in ARMS.items():
                for loss, marker in MARKERS.items():
                    middle, lower, upper = ((value - low) / (high - low) for value in levels[task, loss, arm])
                    effective_rows, _, _ = rows[task, loss, arm]
                    label = title if loss == "huber" else None
                    axes.plot([effective_rows] * 2, [lower, upper], color=color, lw=1.5)
                    axes.plot([effective_rows], [middle], marker, color=color, label=label, ms=6)
            axes.set_title(name)
            axes.set_xscale("log", base=2)
            axes.set_xticks((16, 32, 64))
            axes.xaxis.set_major_formatter("{x:g}")
        panels[0].set_ylabel("score over training")
        figure.supxlabel("effective rows of a batch of 64 (circles: Huber's loss; squares: squared; 95 % intervals)")
        legend_above(figure, panels[0])
        return figure


OWN_LOOPS = {"own_loop_dqn": "DQN on CartPole", "own_loop_td3": "TD3 on Pendulum"}
"""Titles of the guide's loops."""


def own_loops() -> Figure:
    """Draw learning curves of the guide's loops: means of all seeds, in bands from the lowest to the highest seed."""
    runs = own_loop.trained()
    with style():
        figure = Figure(figsize=(900 / 72, 300 / 72), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, (loop, title) in zip(panels, OWN_LOOPS.items(), strict=True):
            steps = own_loop.LOOPS[loop]
            ends = [steps * k / 20 for k in range(3, 21)]
            for variant, (color, _) in zip(own_loop.VARIANTS, HUES, strict=False):
                curves = [own_loop.averages(run, ends, 0.15 * steps) for run in runs[f"{loop}/{variant}"]]
                by_end = list(zip(*curves, strict=True))
                axes.fill_between(ends, list(map(min, by_end)), list(map(max, by_end)), color=color, alpha=0.12, lw=0)
                axes.plot(ends, list(map(fmean, by_end)), color=color, label=variant)
            axes.set_title(title)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.set_xlabel("environment steps")
        panels[0].set_ylabel("return of an episode")
        legend_above(figure, panels[0])
        return figure


def report() -> None:
    """Run the quick study, where `results/quick` does not have it yet, and photograph the top of its report."""
    study = Study.from_toml("quick", DOCS.parent / "results/quick")
    study.run()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers, tempfile.TemporaryDirectory() as folder:
        browser = browsers.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": 1100, "height": 1228}, color_scheme="light")
        page.goto(study.report().resolve().as_uri())
        picture = Path(folder) / "report.png"
        page.screenshot(path=picture)
        browser.close()
        Image.open(picture).convert("RGB").save(PICTURES / "report.webp", quality=70, method=6)


def visits() -> None:
    """Train on CliffWalking, and keep the map."""
    sys.path.insert(0, str(DOCS.parent))
    from examples.cliff_walking import main

    with tempfile.TemporaryDirectory() as folder:
        main(["--out", folder])
        shutil.copy(Path(folder) / "visits.svg", PICTURES)


if __name__ == "__main__":  # the study's workers import this file
    PICTURES.mkdir(exist_ok=True)
    save(speed(), PICTURES / "speed.svg")
    save(ends_drawn(), PICTURES / "episode_ends.svg")
    save(scores(), PICTURES / "positions_or_errors.svg")
    save(own_loops(), PICTURES / "own_loop.svg")
    report()
    visits()
    for picture in sorted(PICTURES.iterdir()):
        print(f"{picture}: {picture.stat().st_size:,} bytes")
