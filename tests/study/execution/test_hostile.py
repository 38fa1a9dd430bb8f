"""Failures of custom code in a study: it may raise, exit, hang, or return no numbers."""

import os
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from replaylab.commands import main as cli
from replaylab.errors import SpecError
from replaylab.files.atomic import whole_file
from replaylab.study import InProcess, Spec
from tests.study.execution.test_study_run import interrupt, workers_of
from tests.study.tiny import command, study, table

HOSTILE = "tests.study.execution.hostile"
MODULES = {
    "raises": ("def f():\n    raise RuntimeError('no luck')\nf()\n", "line 2: RuntimeError: no luck"),
    "no Python": ("def (:\n", "line 1: SyntaxError: "),
    "no text": ("\0", "SyntaxError: |ValueError: "),
    "exits": ("import sys\nsys.exit(0)\n", "line 2: SystemExit: 0"),
    "imports nothing": (
        "import no_such_module_at_all\n",
        "ModuleNotFoundError: No module named 'no_such_module_at_all'",
    ),
    "cannot be made": (
        "from dataclasses import dataclass\nfrom replaylab.replay import CustomSampler\n"
        "@dataclass(frozen=True)\nclass Mine(CustomSampler):\n    a: int = 0\n"
        "    def __post_init__(self):\n        raise KeyError('a')\n",
        "`strategies.uniform` cannot be made: .*line 7: KeyError: 'a'",
    ),
    "no plain data": (
        "from dataclasses import dataclass\nfrom replaylab.replay import CustomSampler\n"
        "@dataclass(frozen=True)\nclass Mine(CustomSampler):\n    a: object = object()\n",
        "every field of .* must be plain data",
    ),
    "no such type": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from replaylab.replay import CustomSampler\n"
        "@dataclass(frozen=True)\nclass Mine(CustomSampler):\n    a: Nothing = 0\n",
        "the types of the fields of .* cannot be read: name 'Nothing' is not defined",
    ),
}


def write(folder: Path, **changes) -> list[str]:
    """Write a study file and return the arguments that run it in one worker."""
    return command(folder, "--workers", "1", **changes)


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_that_cannot_be_imported_is_a_sentence(kind, tmp_path, monkeypatch, capsys):
    text, message = MODULES[kind]
    name = f"own_{kind.replace(' ', '_')}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError, match=message):
        Spec.from_table(table(strategies={"uniform": {"type": f"{name}:Mine"}}))
    assert cli.main(write(tmp_path, strategy=f"{name}:Mine")) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("kind", ["../x:Y", "x..y:Z", "a b:C", "/tmp/x:Y", ":Y", "x\\u0000:Y", "x:", "x:y:z", "é-:Y"])
def test_a_type_that_is_no_module_is_a_sentence(kind, tmp_path, capsys):
    for part in ("learner", "strategy"):
        assert cli.main(write(tmp_path, **{part: kind})) == 2
        reported = capsys.readouterr().err
        assert ".type` must name a" in reported or "has no class" in reported
        assert reported.count("\n") == 1


@pytest.mark.parametrize(
    ("env", "cause"), [("Exits", "SystemExit: 0"), ("ExitsWhenMade", "SystemExit: 0"), ("Crashes", "exit code 7")]
)
def test_an_environment_that_exits_is_refused(env, cause, tmp_path, capfd):
    assert cli.main(write(tmp_path, env=f"{HOSTILE}:{env}-v0")) == 2
    assert cause in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("env", ["Exits", "ExitsWhenMade"])
def test_an_environment_that_exits_while_one_trains_is_a_failure(env, capfd):
    code = cli.main(["train", "--env", f"{HOSTILE}:{env}-v0", "--seeds", "2", "--steps", "50"])
    assert code == (1 if env == "Exits" else 2)
    assert "SystemExit: 0" in capfd.readouterr().err


def test_a_dry_run_of_what_fails_is_no_success(tmp_path, capfd):
    command = write(tmp_path, env=f"{HOSTILE}:Exits-v0")
    assert cli.main([*command, "--dry-run"]) == 1
    assert "FAILS: SystemExit: 0" in capfd.readouterr().out


def test_a_dry_run_knows_the_time_limit_of_a_modules_env(tmp_path):
    """In its own process, where nothing has imported the module."""
    command = [*write(tmp_path, env=f"{HOSTILE}:Numbered-v0", learner="q_learning"), "--dry-run"]
    code = f"from replaylab.commands.main import main; raise SystemExit(main({command}))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (process.returncode, process.stderr) == (0, "")
    assert "expected time: " in process.stdout
    process = study(tmp_path, environments=[f"{HOSTILE}:Calm-v0"], seeds=1)
    (cell,) = process.estimate(executor=InProcess(), seconds=0.1).cells[:1]
    assert cell.speed.limit == 50


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_ctrl_c_ends_a_study_whose_environment_hangs(more, tmp_path):
    victims = interrupt([*write(tmp_path, env=f"{HOSTILE}:Hangs-v0"), *more], lambda run: workers_of(run.pid))
    assert not any(Path(f"/proc/{victim}").exists() for victim in victims)


@pytest.mark.parametrize("seeds", [10**12, 100_001, "[0, 0]"])
def test_seeds_that_no_study_can_have_are_a_sentence(seeds, tmp_path, capsys):
    assert cli.main(write(tmp_path, seeds=seeds)) == 2
    assert "`seeds` must " in capsys.readouterr().err


def test_as_many_seeds_as_there_may_be_are_read_at_once(tmp_path):
    began = time.process_time()
    Spec.from_table(table(seeds=list(range(100_000))))
    assert time.process_time() - began < 5.0  # comparing each with all others takes minutes


def small_files(most: int):
    """Let a process and its children write no file longer than this, which is what a full disk is like."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


@pytest.mark.parametrize("most", [100, 4_000])
def test_rows_that_cannot_be_written_are_a_sentence(most, tmp_path):
    """First nothing fits, then all but the rows: those that come after the first are not trained for nothing."""
    study_run = write(tmp_path, seeds=60, env="FrozenLake-v1", learner="q_learning")
    command = [sys.executable, "-m", "replaylab", *study_run]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=120, preexec_fn=partial(small_files, most), cwd=tmp_path
    )
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1].startswith(f"replaylab: {tmp_path / 'out'}")
    assert "cannot be written: File too large." in process.stderr
    assert "Traceback" not in process.stderr + process.stdout
    assert process.stdout.count("FAILED") <= 1
    assert not list(tmp_path.rglob("*.unfinished"))


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
def test_a_place_that_cannot_be_a_folder_is_a_sentence(place, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    command = write(tmp_path)
    command[command.index("--out") + 1] = str(tmp_path / place)
    assert cli.main(command) == 2
    reported = capsys.readouterr().err
    assert "cannot be written: " in reported
    assert reported.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["runs", "timing", "failures", "study.json", "machine.json"])
def test_something_else_in_the_place_of_a_part_is_a_sentence(name, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).mkdir() if name.endswith(".json") else (out / name).write_text("mine")
    assert cli.main(write(tmp_path)) == 2
    reported = capsys.readouterr().err
    assert reported.startswith(f"replaylab: {out}")
    assert reported.count("\n") == 1


@pytest.mark.skipif(os.getuid() == 0, reason="the superuser may write everywhere")
def test_results_that_may_not_be_written_are_a_sentence(tmp_path, capsys):
    (tmp_path / "out").mkdir(mode=0o500)
    assert cli.main(write(tmp_path)) == 2
    assert "Give another place, or the right to write there." in capsys.readouterr().err


def test_names_as_long_as_they_may_be_make_files(tmp_path):
    long = {"strategies": {"s" * 60: {"type": "uniform"}}, "baseline": "s" * 60}
    tiny = study(tmp_path, learners={"l" * 60: {"type": "dqn"}}, **long)
    longest = tiny.chunks[0].model_copy(update={"environment": "e" * 100})
    with whole_file(tiny.file_of(longest)) as temporary:
        temporary.write_text("x")
    assert tiny.file_of(longest).read_text() == "x"
