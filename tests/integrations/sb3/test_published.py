"""Stable-Baselines3's own tests of buffers pass with our buffer in their place, except those that are listed."""

import subprocess
import sys
from pathlib import Path

import pytest

stable_baselines3 = pytest.importorskip("stable_baselines3")

PIP = ("-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps", "--dest")


@pytest.mark.slow
def test_the_librarys_own_tests_pass(tmp_path):
    """Its tests come with its source, which pip gets: 152 of buffers, n-step returns and hindsight."""
    name = f"stable_baselines3-{stable_baselines3.__version__}"
    subprocess.run([sys.executable, *PIP, str(tmp_path), name.replace("3-", "3==")], check=True)
    subprocess.run(["tar", "xzf", f"{name}.tar.gz"], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "tests.integrations.sb3.published", str(tmp_path / name)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
