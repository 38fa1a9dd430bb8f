"""Make the pictures of the first page and of README: `make pictures`.

* ``speed.svg``: two tables of the page on benchmarks, which hold figures of ``make bench`` and ``make bench-training``.
* ``visits.svg``: the map that ``examples/cliff_walking.py`` draws, of 30 seeds.
* ``report.webp``: the top of the report of the study ``quick``, as a browser shows it.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from replaylab.plotting.palette import HUES
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
    found = operations(page)
    training = [(name, float(uniform.strip("×"))) for name, uniform, _ in table_of(page, "| replaylab trains |")]
    with style():
        figure = Figure(figsize=(900 / 72, 360 / 72), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        bars = left.barh(
            [name for name, _, _ in found], [times for _, _, times in found], color=HUES[0][0], height=0.65
        )
        left.bar_label(bars, [f"{times:g}× {peer}" for _, peer, times in found], padding=4)
        left.axvline(1.0, color="#555555", lw=1)
        left.set(xlim=(0, 1.3 * found[-1][2]), xlabel="time of the fastest other library, over replaylab's")
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
    report()
    visits()
    for made in sorted(PICTURES.iterdir()):
        print(f"{made}: {made.stat().st_size:,} bytes")
