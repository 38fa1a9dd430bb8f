"""The loops of the guide "Your own training loop": each of its diffs fits the files and does what the guide says."""

import pickle
import random
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from docs import own_loop
from replaylab import ReplayBuffer
from tests.replay.test_loop_state import same

torch = pytest.importorskip("torch")

RESUME = "Save and resume"
HEADINGS = ("Prioritized replay", "n-step returns", RESUME, "Draw ahead, on a device")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(loop, headings, **changes):
    """Train for few steps, and return the episodes."""
    train = own_loop.names_of(loop, headings)["train"]
    train.__globals__.update({"BATCH": 16, "SAVE_EVERY": 100, **changes})
    return train(seed=3, steps=420, start=100)


@pytest.mark.parametrize("loop", own_loop.LOOPS)
def test_the_page_shows_the_file(loop):
    source = (own_loop.EXAMPLES / f"{loop}.py").read_text()
    assert f"```py\n{source}```\n" in own_loop.PAGE.read_text()
    assert tuple(own_loop.diffs(loop)) == HEADINGS


@pytest.mark.parametrize("loop", own_loop.LOOPS)
@pytest.mark.parametrize("headings", [(), *((heading,) for heading in HEADINGS), HEADINGS, HEADINGS[::-1]], ids=str)
def test_each_variant_learns_from_its_batches(loop, headings, monkeypatch):
    updates = []
    step = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *args: (updates.append(1), step(*args))[1])
    returns = run(loop, headings)
    assert len(returns) >= 2
    assert len(updates) >= 320


@pytest.mark.parametrize("loop", own_loop.LOOPS)
def test_diffs_fit_in_any_combination(loop):
    for count in range(len(HEADINGS) + 1):
        for headings in combinations(HEADINGS, count):
            assert callable(own_loop.names_of(loop, headings)["train"])


@pytest.mark.parametrize("headings", [(RESUME,), HEADINGS], ids=["plain", "all"])
@pytest.mark.parametrize("loop", own_loop.LOOPS)
def test_a_resumed_run_equals_the_uninterrupted(loop, headings, tmp_path):
    dumps = iter([pickle.dumps, pickle.dumps])

    def interrupted(env):
        try:
            return next(dumps)(env)
        except StopIteration:
            raise KeyboardInterrupt from None

    complete, stopped = tmp_path / "complete", tmp_path / "stopped"
    returns = run(loop, headings, FOLDER=complete)
    with pytest.raises(KeyboardInterrupt):
        run(loop, headings, FOLDER=stopped, pickle=SimpleNamespace(dumps=interrupted))
    assert ReplayBuffer.load(stopped, continue_episodes=True).state["step"] == 200
    for global_generator in (random.seed, np.random.seed, torch.manual_seed):
        global_generator(1)
    assert run(loop, headings, FOLDER=stopped) == returns
    buffers = [ReplayBuffer.load(folder, continue_episodes=True) for folder in (complete, stopped)]
    states = [dict(buffer.state) for buffer in buffers]
    assert states[0]["step"] == 400
    assert all(state.pop("env") for state in states)  # pickles may write the same environment in two ways
    assert same(*states)
    batches = [buffer.sample(64) for buffer in buffers]
    for name in batches[0]:
        np.testing.assert_array_equal(batches[0][name], batches[1][name])


def test_a_diff_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="these lines must occur once, but occur 0 times:\nno such line"):
        own_loop.patched("text\n", " no such line\n+more\n")


def test_averages_are_of_the_episodes_in_the_window():
    run = {"returns": [[1, 10.0], [4, 20.0], [9, 40.0]]}
    assert own_loop.averages(run, [5, 10], 5) == [15.0, 40.0]
