"""Reports of values and names that are legal and unusual."""

import json
import sys
from html import unescape

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.text import Text

from replaylab.plotting.drawing import shortened
from replaylab.plotting.readout import Readout, ReadoutCurve, to_json
from replaylab.statistics import Interval
from replaylab.study import InProcess, Study
from replaylab.study.report import figures
from replaylab.study.report.figures import Dots, Row
from replaylab.study.report.sections.learning_curves import _range_of
from tests.study.tiny import pretended, study

CORRIDOR = """
import gymnasium as gym
from gymnasium import spaces


class Corridor(gym.Env):
    observation_space, action_space, t = spaces.Discrete(4), spaces.Discrete(2), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return 0, {}

    def step(self, action):
        self.t += 1
        return self.t % 4, 1.0, self.t == 9, False, {}


gym.register("Hallway-v0", Corridor)
"""


def test_without_the_module_of_its_environment(tmp_path, monkeypatch, undrawn):
    """Visits are shown by the states' numbers where nobody can draw a map."""
    (tmp_path / "corridors.py").write_text(CORRIDOR)
    options = {"environments": ["corridors:Hallway-v0"], "learners": {"q": {"type": "q_learning"}}}
    options |= {"logging": {"every": 100, "visits": True}, "measures__every": 0, "seeds": 2}
    monkeypatch.syspath_prepend(tmp_path)
    tiny = study(tmp_path / "made", **options, strategies={"uniform": {"type": "online"}}, budget__steps=200)
    assert tiny.run(executor=InProcess()).complete
    monkeypatch.undo()
    sys.modules.pop("corridors", None)
    del gym.registry["Hallway-v0"]
    again = Study.from_folder(tmp_path / "made")
    again.report(tmp_path / "page", figure_files=False)
    text = unescape((tmp_path / "page" / "report.html").read_text())
    assert "Hallway-v0" in text
    assert "Every run takes 200 environment steps" in text


@pytest.mark.parametrize("level", [0.0, -7.0, 1e8, 1e300])
def test_returns_that_are_all_equal(level):
    curve = type("Curve", (), {"environment": "a"})()
    band = type("Of", (), {"estimate": np.full(3, level)})()
    low, high = _range_of([[(curve, band)]])("a")
    assert low == level < high
    assert np.isfinite((np.full(3, level) - low) / (high - low)).all()


def test_the_numbers_behind_a_narrow_axis_differ():
    values = 100_000.0 + np.arange(4)
    curve = ReadoutCurve("a", "s0", "--hue-0", np.arange(4), [values, values - 0.25, values + 0.25])
    (panel,) = json.loads(to_json([Readout((0, 0, 9, 9), (0, 3, 99_999.75, 100_003.25), "step", [curve])]))["panels"]
    assert panel["limits"] == [0, 3, 99_999.75, 100_003.25]
    assert panel["curves"][0][4] == values.tolist()
    np.testing.assert_allclose(panel["curves"][0][5], values - 0.25, atol=0.05)


def test_names_that_are_crossed_stay_different():
    names = [f"T.alpha-0.6.block_length-{length}.beta-0" for length in (1, 8, 64)]
    names += [f"uniform, published.capacity-{c}" for c in (1_000, 10_000, 60_000)]
    short = [shortened(name, 170.0, 12.5) for name in names]
    assert len(set(short)) == len(names)
    assert all(len(label) <= 24 and "…" in label for label in short)
    assert shortened("uniform", 170.0) == "uniform"
    assert len(shortened("uniform", 0.0)) == 3


def test_labels_of_rows_fit_beside_their_axes():
    name = "CartPole: what a target copied each episode changes for prioritizing" * 2
    sheet = figures.dots([("", [Dots("", [Row(name, "#000000", Interval(0.0, -1.0, 1.0))])])], "score")
    (panel,) = sheet.groups[0].panels
    drawn = {text.get_text() for text in panel.figure.findobj(Text) if "CartPole" in text.get_text()}
    width = panel.figure.get_size_inches()[0] * 72
    assert drawn
    assert all(len(text) * 6.3 <= width / 2 + 7 for text in drawn)


def test_a_run_of_nan_hides_no_other_run():
    rows = [Row("a", "#123456", Interval(0.5, 0.0, 1.0), np.array([0.5, 1.0, np.nan]))]
    (panel,) = figures.dots([("", [Dots("", rows)])], "score").groups[0].panels
    lines = [line.get_xdata() for axes in panel.figure.axes for line in axes.lines if line.get_alpha() == 0.5]
    assert np.isfinite(lines[0]).sum() == 2
    assert panel.body.count("h0") == 4  # two runs, and the estimate twice


def test_what_a_notebook_says(tmp_path):
    tiny = pretended(
        tmp_path / "100%25 a#b", 1.0, strategies={"uniform": {"type": "uniform", "budget": {"steps": 100}}}
    )
    (tiny.folder / "report.html").write_text("r")
    (tiny.folder / "failures").mkdir(exist_ok=True)
    (tiny.folder / "failures" / "one.txt").write_text("it raised")
    html = tiny._repr_html_()
    assert "/100%2525%20a%23b/report.html" in html
    assert "1 chunk failed" in html
    assert "100 environment steps each" in html
