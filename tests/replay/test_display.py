"""Displays of a buffer."""

from html.parser import HTMLParser

import numpy as np
import pytest

from replaylab.replay import Field, FrameStack, NStep, Prioritized, ReplayBuffer, Reservoir, Uniform
from tests.replay.buffers import transition

OBS = {"camera": Field((84, 84), np.uint8), "<b>&": Field((3,), np.float64)}
FIELDS = transition(OBS)


class Page(HTMLParser):
    """Checks that tags close in order and keeps the texts."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.rows = [], [], []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


@pytest.fixture
def full():
    transforms = (NStep(3, 0.99), FrameStack(4, ("obs.camera",)))
    options = {"transforms": transforms, "next_obs": "derived", "autoreset": "next_step", "num_envs": 4}
    buffer = ReplayBuffer(1000, FIELDS, sampler=Prioritized(beta=1.0), seed=0, **options)
    obs = {"camera": np.zeros((90, 4, 84, 84), np.uint8), "<b>&": np.zeros((90, 4, 3))}
    no = np.zeros((90, 4), bool)
    buffer.extend(obs=obs, reward=np.zeros((90, 4)), next_obs=obs, terminated=no, truncated=no)
    return buffer


class TestHtml:
    def test_the_figures_are_there(self, full):
        page = Page(full._repr_html_())
        assert page.rows[:3] == [
            ["field", "shape", "dtype", "bytes a step"],
            ["obs.camera", "(84, 84)", "uint8", "7,056"],
            ["obs.<b>&", "(3,)", "float64", "24"],
        ]
        assert ["next_obs.camera", "(84, 84)", "uint8", "derived"] in page.rows
        facts = dict(row for row in page.rows if len(row) == 2)
        assert facts["sampler"] == repr(full.sampler)
        assert facts["transforms"] == "NStep(steps=3, gamma=0.99, last=()), " + repr(full.transforms[1])
        assert (facts["autoreset"], facts["next_obs"], facts["environments"]) == ("next_step", "derived", "4")
        assert facts["memory"].startswith(f"{full.nbytes / 2**20:.1f} MiB, ")
        assert "360 of 1,000 steps (36&nbsp;%)" in full._repr_html_()
        assert any("width:36.0%" in attrs.get("style", "") for _, attrs in page.tags)

    def test_names_are_escaped(self, full):
        assert "<b>&" not in full._repr_html_()
        assert "&lt;b&gt;&amp;" in full._repr_html_()

    def test_it_stands_alone(self, full):
        """No script, no address, and no colour that would not be read on a dark page."""
        page = full._repr_html_()
        assert not any(word in page for word in ("<script", "http", "url(", "<style", "class="))
        assert all("color:inherit" in attrs["style"] for tag, attrs in Page(page).tags if tag in ("td", "th", "table"))

    def test_replicas(self):
        buffer = ReplayBuffer(10, {"x": Field()}, replicas=2, num_envs=2, retention=Reservoir(), seed=0)
        buffer.add(x=np.zeros((2, 2)), where=np.array([[True, True], [True, False]]))
        page = buffer._repr_html_()
        facts = dict(row for row in Page(page).rows if len(row) == 2)
        assert (facts["replicas"], facts["environments"], facts["retention"]) == ("2", "2", "Reservoir()")
        assert "1 to 2 of 10 steps (15&nbsp;%)" in page


class TestText:
    def test_short(self):
        buffer = ReplayBuffer(1000, {"x": Field(), "y": (Field((2,)), Field())}, seed=0)
        size = f"{buffer.nbytes / 1024:.1f} KiB"
        assert repr(buffer) == f"ReplayBuffer(0 of 1,000 steps, {size}, {Uniform()!r}, fields: x, y.0, y.1)"

    def test_full(self, full):
        text = repr(full)
        assert text.startswith("ReplayBuffer(360 of 1,000 steps, 4 envs, ")
        for word in (repr(full.sampler), "NStep(steps=3", "FrameStack(", "next_step", "next_obs: derived", "<b>&"):
            assert word in text
