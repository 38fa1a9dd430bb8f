"""The guides' examples run one after the other, on Ray."""

import re
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guides"

pytestmark = [pytest.mark.slow, pytest.mark.no_sanitizer]


@pytest.mark.parametrize("guide", ["remote-replay.md", "distributed-training.md"])
def test_the_guide_does_what_it_says(ray_here, guide, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_here, "init", lambda **_: None)
    names = {"__name__": "guide"}
    for code in re.findall(r"^```py\n(.*?)^```$", (GUIDES / guide).read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(code, guide, "exec"), names)
