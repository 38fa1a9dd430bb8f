"""Make the pictures of the first page and of README: `make pictures`.

* ``speed.svg``: the table "How fast" of README, which holds the figures of one run of ``make bench``.
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


def rows(readme: str) -> list[tuple[str, str, float]]:
    """Return README's operations, the fastest peer of each, and how many times as long it takes."""
    table = readme.split("| | fastest peer |")[1].split("\n\n")[0]
    found = []
    for line in table.splitlines()[2:]:
        operation, peer, times, _ = (cell.strip() for cell in line.strip("|").split("|"))
        first, peer = float(re.search(r"[\d.]+", times)[0]), re.split("[;,]", peer)[0]
        name = operation.replace("`", "").split(";")[0]
        found.append((name, peer, first))
    return found


def speed() -> Figure:
    """Draw the table as bars."""
    found = sorted(rows((DOCS.parent / "README.md").read_text()), key=lambda row: row[2])
    with style():
        figure = Figure(figsize=(760 / 72, 360 / 72), layout="constrained")
        ax = figure.subplots()
        bars = ax.barh([name for name, _, _ in found], [times for _, _, times in found], color=HUES[0][0], height=0.65)
        ax.bar_label(bars, [f"{times:g}× {peer}" for _, peer, times in found], padding=4)
        ax.axvline(1.0, color="#555555", lw=1)
        ax.set(xlim=(0, 1.25 * found[-1][2]), xlabel="time of the fastest other library, over replaylab's")
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
