"""CleanRL's published scripts run with their import line changed, and with the same draws learn the same.

They ask for Gymnasium 0.28 or 0.29, and for an older Python than ours, so they lie in their own folder.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from replaylab.replay import CustomSampler

FOLDER = Path(os.environ.get("CLEANRL", "no folder"))
HOW = (
    "pip install --no-deps --ignore-requires-python --target FOLDER cleanrl==1.2.0 gymnasium==0.29.1, then set "
    "CLEANRL=FOLDER"
)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (FOLDER / "cleanrl/dqn.py").exists(), reason=HOW)]

IMPORT = re.compile(r"^from (cleanrl_utils|stable_baselines3\.common)\.buffers import ReplayBuffer$", re.MULTILINE)
"""The line of the repository, and that of the package on the index, which still took Stable-Baselines3's buffer."""

OURS = "from replaylab.integrations.cleanrl import ReplayBuffer"
SAME_DRAWS = f"""{OURS} as Ours
from functools import partial
from tests.integrations.test_cleanrl_scripts import Places
ReplayBuffer = partial(Ours, sampler=Places(), seed=0)"""

PENDULUM = ["--env-id", "Pendulum-v1"]
SCRIPTS = {
    "dqn": ["--train-frequency", "2", "--exploration-fraction", "0.2"],
    "c51": ["--train-frequency", "2"],
    "td3_continuous_action": PENDULUM,
    "ddpg_continuous_action": PENDULUM,
    "sac_continuous_action": PENDULUM,
}
"""Those that run on a processor, in environments that come with Gymnasium."""

RUN = """
import sys, runpy, numpy
numpy.bool8 = numpy.bool_  # which Gymnasium 0.29 asks NumPy 2 for
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Places(CustomSampler):
    """Draws from NumPy's global generator, in the order in which CleanRL's own buffer draws places and environments."""

    no_closed_form = "it replays another library's draws"

    def draw(self, view, batch_size, rng):
        ids = view.ids[np.random.randint(0, len(view), size=batch_size)]  # noqa: NPY002
        np.random.randint(0, high=1, size=batch_size)  # noqa: NPY002
        return ids


def returns(name, text, folder, steps=700):
    """Run a script, and return the episodic returns that it prints."""
    folder.mkdir()
    script = folder / f"{name}.py"
    script.write_text(text)
    paths = [FOLDER, Path(__file__).parents[2], *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    options = [
        "--total-timesteps",
        str(steps),
        "--learning-starts",
        "150",
        "--buffer-size",
        "5000",
        "--batch-size",
        "32",
    ]
    command = [sys.executable, "-c", RUN, str(script), *options, *SCRIPTS[name]]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.findall(r"episodic_return=(.*)", done.stdout)
    assert len(found) >= 3, done.stdout
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run_with_one_line_changed(name, tmp_path):
    script = FOLDER / "cleanrl" / f"{name}.py"
    text = script.read_text()
    if re.search(r"^import gym$", text, re.MULTILINE):
        pytest.skip("written for gym, before Gymnasium")
    assert len(IMPORT.findall(text)) == 1
    returns(name, IMPORT.sub(OURS, text), tmp_path / "ours")
    theirs = returns(name, text, tmp_path / "theirs")
    assert returns(name, IMPORT.sub(SAME_DRAWS, text), tmp_path / "same") == theirs
