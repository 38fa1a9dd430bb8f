"""CleanRL's published scripts run with their import line changed, and with the same draws learn the same.

They ask for Gymnasium 0.28 or 0.29, and for an older Python than ours, so pip installs release 1.2.0 into a folder of
its own, without dependencies. With the edits of the guide they run under the installed Gymnasium 1.x, too. The variable
CLEANRL names a clone of the repository in place of the release: its scripts are newer, and all ask for Gymnasium.
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

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guides/cleanrl.md"
PIP = ("-m", "pip", "install", "--quiet", "--no-deps", "--ignore-requires-python", "--target")
pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a function that installs packages, without dependencies, and returns their folder."""

    def install(*packages):
        folder = tmp_path_factory.mktemp("packages")
        done = subprocess.run([sys.executable, *PIP, str(folder), *packages], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return folder

    return install


@pytest.fixture(scope="module")
def gymnasium_029(installed):
    """Return the folder of the Gymnasium that the scripts ask for."""
    return installed("gymnasium==0.29.1")


@pytest.fixture(scope="module")
def cleanrl(installed):
    """Return the folder of CleanRL."""
    clone = os.environ.get("CLEANRL")
    return Path(clone) if clone else installed("cleanrl==1.2.0")


def script_of(cleanrl, name):
    """Return a script's text, which has the one line to change."""
    text = (cleanrl / "cleanrl" / f"{name}.py").read_text()
    if re.search(r"^import gym$", text, re.MULTILINE):
        pytest.skip("written for gym, before Gymnasium")
    assert len(IMPORT.findall(text)) == 1
    return text


def returns(name, text, folder, paths, steps=700):
    """Run a script, and return the episodic returns that it prints."""
    folder.mkdir()
    script = folder / f"{name}.py"
    script.write_text(text)
    paths = [*paths, ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    options = {"--total-timesteps": steps, "--learning-starts": 150, "--buffer-size": 5000, "--batch-size": 32}
    arguments = [str(part) for option in options.items() for part in option]
    command = [sys.executable, "-c", RUN, str(script), *arguments, *SCRIPTS[name]]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    printed = re.findall(r"episodic_return=(.*)", done.stdout)
    assert len(printed) >= 3, done.stdout
    return printed


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run_with_one_line_changed(name, cleanrl, gymnasium_029, tmp_path):
    text, paths = script_of(cleanrl, name), [gymnasium_029, cleanrl]
    returns(name, IMPORT.sub(OURS, text), tmp_path / "ours", paths)
    original = returns(name, text, tmp_path / "theirs", paths)
    assert returns(name, IMPORT.sub(SAME_DRAWS, text), tmp_path / "same", paths) == original


def edits(part):
    """Return the edits of a part of the guide: removed lines and the lines in their place."""
    section = GUIDE.read_text().split("## With Gymnasium 1.x\n")[1].split("\n## ")[0]
    text = section.split("To keep Gymnasium 1.x's default")[part]
    blocks = [re.sub("^   ", "", block, flags=re.M) for block in re.findall(r"```diff\n(.*?)\n *```", text, re.DOTALL)]
    return [["\n".join(re.findall(rf"^\{sign}(.*)", block, re.MULTILINE)) for sign in "-+"] for block in blocks]


def edited(text, part):
    """Return a script with the guide's edits. Release 1.2.0 calls its flags otherwise than the repository does."""
    flags = re.search(r"^ +next_obs, rewards, (\w+), (\w+), infos = envs\.step", text, re.MULTILINE)
    text = IMPORT.sub(OURS, text)
    for before, after in edits(part):
        for name, flag in zip(("terminations", "truncations"), flags.groups(), strict=True):
            before, after = (re.sub(rf"\b{name}\b", flag, code) for code in (before, after))
        if before:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        else:
            block = r"^ +if \"final_info\" in infos:\n(?: {12}.*\n)+"
            assert len(re.findall(block, text, re.MULTILINE)) == 1
            text = re.sub(block, lambda _, code=after: code + "\n", text, flags=re.MULTILINE)
    if part:
        text = re.sub(r" +real_next_obs = .*\n +for idx.*\n +if .*\n +real_next_obs.*\n", "", text)
    return text


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("part", [0, 1], ids=["same-step", "next-step"])
def test_scripts_run_under_gymnasium_1_with_the_edits(name, part, cleanrl, tmp_path):
    text = edited(script_of(cleanrl, name), part)
    assert 'final_observation"]' not in text
    assert ("real_next_obs" in text) == (part == 0)
    returns(name, text, tmp_path / "ours", [cleanrl])
