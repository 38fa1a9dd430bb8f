"""`make device-check` runs from end to end on a CPU at small sizes, and says what it skipped and missed."""

import importlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from benchmarks.device_check import __main__ as check
from benchmarks.device_check import graphs, peers, pong, prepare
from benchmarks.device_check.figures import Figures
from benchmarks.device_check.reference_buffers import FastTD3Buffer
from benchmarks.device_check.sizes import SMALL, chained, fields, steps

from replaylab.torch import DeviceReplay

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
ONE_EACH = {
    "kernels": ("index_select", "draw + gather", "update of", "add of", "captured(), until the call returns"),
    "peers": ("torchrl uniform", "FastTD3's buffer", "ManiSkill's buffer", "memory of Prioritized", "cumsum"),
    "host": ("sample(32).torch", "prefetch=2", "eager, faster by"),
    "graphs": ("graph breaks", "recompilations", "differ from eager"),
    "pong": ("environment steps a second", "learned rows a second", "greedy games"),
}


@pytest.mark.parametrize(
    "compiled",
    [  # tests/torch/test_compiled_device_replay.py compiles, too.
        pytest.param([], id="without graphs and peers"),
        pytest.param(graphs.SAMPLERS[1:], id="uniform draws compiled", marks=pytest.mark.slow),
        pytest.param(graphs.SAMPLERS, id="all compiled", marks=pytest.mark.slow),
    ],
)
def test_every_part_runs_on_a_cpu(compiled, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(graphs, "SAMPLERS", compiled)
    out = tmp_path / "figures.json"
    parts = [part for part in check.PARTS if compiled or part not in ("graphs", "peers")]
    status = check.main(["--device", "cpu", "--out", str(out), "--minutes", "1", *parts])
    result, printed = json.loads(out.read_text()), capsys.readouterr().out
    for part in parts:
        names = ONE_EACH[part]
        figures_of_part = [figure for figure in result["figures"] if figure["part"] == part]
        for name in names:
            assert any(name in figure["what"] and figure["value"] is not None for figure in figures_of_part), (
                part,
                name,
            )
        assert f"==> {part}" in printed
    missed = [figure for figure in result["figures"] if figure["reached"] is False]
    assert (status, missed) == (0, [])
    assert all(figure["unit"] != "µs" or figure["reached"] is None for figure in result["figures"])
    judged = {figure["what"] for figure in result["figures"] if figure["reached"] is not None}
    assert len([what for what in judged if what.startswith("memory of")]) == (4 if compiled else 0)
    skipped = "skipped: graphs: synchronization and graph replays (they need a GPU)"
    assert (skipped in printed) == bool(compiled)
    assert result["torch"] == torch.__version__
    assert f"torch {torch.__version__}" in printed
    assert not any(", graph" in figure["what"] for figure in result["figures"])  # no graph is captured on a CPU


def test_parts_end_in_time(tmp_path, monkeypatch, capsys):
    """After a part's share of the time nothing of it begins; at the end the rest is named, even if something waits."""
    figures = Figures(CPU, deadline=0.0)
    figures.attempt("draws", lambda: pytest.fail("it began"))
    assert "draws" in next(iter(figures.skipped))

    ended = threading.Event()
    monkeypatch.setattr(check.os, "_exit", lambda status: ended.set())
    monkeypatch.setattr(check.kernels, "run", lambda figures, sizes: ended.wait(60))
    out = tmp_path / "figures.json"
    check.main(["--device", "cpu", "--parts", "kernels", "--seconds", "0.2", "--out", str(out)])
    assert ended.is_set()
    assert "the rest (0.2 seconds are over)" in capsys.readouterr().out


def test_updates_and_adds_change_what_they_should():
    """Each measured update changes priorities, and only truncated rows of an add need the side ring."""
    first, second = chained(CPU, 64, torch.Generator().manual_seed(0))
    replay = DeviceReplay(1_280, fields(), num_envs=64, next_obs="derived", device="cpu", seed=0)
    for _ in range(10):
        replay.add(**first)
        replay.add(**second)
    truncated = int(first["truncated"].sum() + second["truncated"].sum())
    assert 0 < int(replay.parts.ring.closings) <= 10 * truncated


def test_failures_and_missing_packages_are_named(monkeypatch, capsys):
    figures = Figures(CPU, part="pong")
    monkeypatch.setattr(pong, "find_spec", lambda name: None if name == "ale_py" else object())
    pong.run(figures, pong.Game("uniform", 1.0))
    assert "not installed: ale_py" in figures.skipped["pong: ALE/Pong-v5"]
    figures.attempt("another package", lambda: importlib.import_module("no_such_package"))
    assert figures.skipped["pong: another package"] == "No module named 'no_such_package'"
    figures.attempt("something", lambda: 1 / 0)
    assert figures.figures[0].reached is False
    assert "failed: ZeroDivisionError" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        check.main(["kernel"])


def test_fasttd3s_own_file_is_used_where_it_is_given(tmp_path, capsys):
    (tmp_path / peers.FASTTD3_FILE).write_text(
        "import torch\n"
        "class SimpleReplayBuffer:\n"
        "    def __init__(self, n_env, buffer_size, n_obs, n_act, n_critic_obs, n_steps, gamma, device):\n"
        "        self.stored = 0\n"
        "    def extend(self, step):\n"
        "        self.stored += len(step['next']['rewards'])\n"
        "    def sample(self, batch_size):\n"
        "        return torch.zeros(self.stored)\n"
    )
    peers._fasttd3(Figures(CPU), SMALL, 1, tmp_path)
    assert "original of FastTD3's buffer" in capsys.readouterr().out


def test_the_reference_of_fasttd3_returns_what_a_loop_computes():
    """So that what is timed does the work: returns, ends and next observations of three steps, in a full ring."""
    envs, length, gamma = 3, 7, 0.5
    buffer = FastTD3Buffer(envs, length, 2, 1, 3, gamma, CPU)
    generator, stored = torch.Generator().manual_seed(0), []
    for _ in range(length + 3):
        step = steps(CPU, envs, generator, 2, 1)
        ends = torch.rand(2, envs, generator=generator) < 0.2
        step |= {"terminated": ends[0], "truncated": ends[1] & ~ends[0]}
        buffer.add(step)
        stored.append(step)
    batch = buffer.sample(40)
    newest = stored[-length:]
    for row in range(len(batch["rewards"])):
        env = row // 40
        first = next(t for t in range(length) if torch.equal(newest[t]["obs"][env], batch["obs"][row]))
        wanted, last = 0.0, first
        for k in range(3):
            last = first + k
            wanted += gamma**k * float(newest[last]["reward"][env])
            ended = bool(newest[last]["terminated"][env] | newest[last]["truncated"][env])
            if ended or last == length - 1:
                break
        assert torch.equal(batch["next_obs"][row], newest[last]["next_obs"][env])
        assert bool(batch["dones"][row]) == bool(newest[last]["terminated"][env] | newest[last]["truncated"][env])
        if ended or last < length - 1 or first + 2 == last:
            assert float(batch["rewards"][row]) == pytest.approx(wanted)
            assert int(batch["n_steps"][row]) == last - first + 1


def test_a_development_environment_needs_no_build(tmp_path, monkeypatch):
    ran = []
    real = subprocess.run

    def run(command, **options):
        if "pip" in command:
            ran.append(command)
            return None
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", run)
    prepare.prepare(tmp_path / "site", None)
    assert ran == []
    (tmp_path / "some-1.0-py3-none-any.whl").touch()
    monkeypatch.setattr(prepare, "ROOT", tmp_path)  # another checkout
    prepare.prepare(tmp_path / "site", tmp_path)
    assert ran[0][-1].endswith("some-1.0-py3-none-any.whl")
    assert ran[1][-1] == str(tmp_path)
    assert all({"--no-index", "--no-deps"} <= set(command) for command in ran)
    (tmp_path / "replaylab-0.1.0-cp312-abi3-linux_x86_64.whl").touch()  # then nothing is built
    prepare.prepare(tmp_path / "site", tmp_path)
    assert len(ran) == 3


@pytest.mark.slow
def test_the_core_is_built_without_an_index(tmp_path):
    """In an interpreter that has the packages of this one, but not this checkout: files .pth are not read there."""
    packages = str(Path(torch.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": packages}
    site = tmp_path / "site"
    python = getattr(sys, "_base_executable", sys.executable)
    command = [python, "-m", "benchmarks.device_check.prepare", "--site", str(site)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    asked = [python, "-c", "import replaylab; print(replaylab.__file__)"]
    environment["PYTHONPATH"] = os.pathsep.join([str(site), packages])
    printed = subprocess.run(asked, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert Path(printed.strip()).is_relative_to(site)
