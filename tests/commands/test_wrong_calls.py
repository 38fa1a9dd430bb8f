"""Wrong calls of the command line: a sentence and exit code 2, never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from replaylab.commands import main as cli
from replaylab.commands.main import _run
from tests.commands.test_main import TINY

TOML = {
    "no TOML": "name = ",
    "no text": b"\xff\xfe\x00",
    "nothing": "",
    "nested": "a = " + "[" * 5_000 + "]" * 5_000,
    "endless number": "seeds = " + "9" * 5_000,
    "a list of tables": "[[budget]]\nsteps = 3",
    "numbers for tables": "name = 1\nlearners = 2\nstrategies = 3\nbudget = 4",
}
CHANGES = [
    ("seeds = 2", "seeds = 1_000_000_000_000"),
    ("seeds = 2", "seeds = [1, 1]"),
    ("seeds = 2", "seeds = [-1]"),
    ("seeds = 2", "seeds = [9223372036854775808]"),
    ("seeds = 2", "seeds = 2.0"),
    ("seeds = 2", "seeds = 1979-05-27"),
    ("seeds = 2", "seeds = 2\nchunk = 0"),
    ("seeds = 2", "seeds = 2\nbaseline = 3"),
    ("steps = 200", "steps = -1"),
    ("steps = 200", "steps = nan"),
    ("steps = 200", f"steps = {10**30}"),
    ("every = 100", "every = 0"),
    ("every = 100", f"every = {10**30}"),
    ("episodes = 1", f"episodes = {10**30}"),
    ("hidden = [8]", "hidden = [nan]"),
    ("hidden = [8]", "hidden = {a = 1}"),
    ("hidden = [8]", "gamma = nan"),
    ("hidden = [8]", "gamma = 1979-05-27T07:32:00"),
    ("hidden = [8]", 'epsilon = {type = "no such"}'),
    ("hidden = [8]", "epsilon = {a = 1}"),
    ('type = "dqn"', 'type = ["dqn"]'),
    ('type = "dqn"', "type = 3"),
    ('type = "dqn"', 'type = "../x:Y"'),
    ('type = "none"', 'type = "none"\nbudget = 3'),
    ('type = "none"', 'type = "none"\nvary = 3'),
    ('type = "none"', 'type = "none"\nvary = {alpha = []}'),
    ('type = "none"', 'type = "none"\nfactors = {a = nan}\ntransforms = 3'),
    ('type = "none"', 'type = "none"\nlearner = {gamma = "x"}'),
    ('type = "none"', 'type = "none"\nlearners = 3'),
    ('type = "none"', 'type = "none"\n[scores."CartPole-v1"]\nlow = nan\nhigh = 1'),
    ('type = "none"', 'type = "none"\n[scores."CartPole-v1"]\nlow = 1\nhigh = inf'),
    ('type = "none"', 'type = "none"\n[env_options."CartPole-v1"]\nnonsense = nan'),
    ('type = "none"', 'type = "none"\n[[contrasts]]\nname = "a"\nmore = {}\nless = {}'),
    ('type = "none"', 'type = "none"\n[[contrasts]]\nname = "a"\nmore = {x = {}}\nless = 3'),
    ('type = "none"', 'type = "none"\n[origins]\nstrategies = 3'),
    ('type = "none"', 'type = "none"\n[origins.strategies.a]\ntable = "b"'),
    ('type = "none"', 'type = "none"\n[overrides]\nnone = 3'),
    ('["CartPole-v1"{more}]', '["../x:Y-v0"]'),
    ('["CartPole-v1"{more}]', '["a:b:c"]'),
    ('["CartPole-v1"{more}]', '["ALE/../x"]'),
    ('["CartPole-v1"{more}]', "[3]"),
    ('["CartPole-v1"{more}]', '[""]'),
    ('["CartPole-v1"{more}]', '"CartPole-v1"'),
]
CALLS = [
    "study run nowhere.toml",
    "study run .",
    "study run /dev/null",
    "study run a\0b",
    "study run quick --workers 0",
    "study run quick --workers -1 --dry-run",
    "study run quick --checkpoint-every -1",
    "study run quick --out FILE",
    "study report .",
    "study report nowhere",
    "study report FILE",
    "study report a\0b",
    "train --env nowhere-v0",
    "train --env ../x:Y-v0",
    "train --env a\0b",
    "train --seeds 0",
    "train --seeds -3",
    "train --seeds 1000000000000",
    "train --first-seed -1",
    "train --first-seed 9223372036854775808",
    "train --steps 0",
    "train --steps -5",
    "train --episodes 0",
    "train --episodes 5 --steps 5",
    "train --eval-every 0 --steps 10",
    "train --eval-every -1",
    "train --eval-episodes 0",
    "train --held-out -1",
    "train --strategy ../x:Y",
    "train --strategy prioritised",
    "train --strategy online --strategy-options alpha=1",
    "train --strategy-options alpha",
    "train --strategy-options =1",
    "train --learner nothing",
    "train --learner ../x:Y",
    "train --learner-options hidden=x",
    "train --learner-options gamma=nan",
    "train --transforms nothing:x",
    "train --env-options n=[",
    "train --out .",
    "train --out FILE/x",
    "train --out /proc/nowhere/x",
    "train --tensorboard FILE",
    "train --save FILE",
    "train --save-every 0 --save new --steps 10",
    "train --save-every 5 --steps 10",
    "train --video FILE/x.mp4",
    "train --resume nowhere",
    "train --resume FILE",
    "train --resume a\0b",
]


def refused(arguments, capsys) -> str:
    """Run a command that must be refused, and return what it says."""
    assert cli.main(arguments) == 2
    reported = capsys.readouterr().err
    assert reported.startswith("replaylab: ")
    assert "Traceback" not in reported
    return reported


@pytest.mark.parametrize("kind", TOML)
def test_a_file_that_is_no_study_is_a_sentence(kind, tmp_path, capsys):
    file, text = tmp_path / "study.toml", TOML[kind]
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    assert str(file) in refused(["study", "run", str(file)], capsys)


@pytest.mark.parametrize(("here", "replacement"), CHANGES)
def test_a_study_with_a_wrong_value_is_a_sentence(here, replacement, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert here in TINY
    Path("study.toml").write_text(TINY.replace(here, replacement).replace("{more}", ""))
    refused(["study", "run", "study.toml", "--executor", "in-process"], capsys)


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_is_a_sentence(call, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("mine")
    refused(call.split(" "), capsys)
    assert Path("FILE").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\0", "[" * 100_000, '{"environment": 3}'])
def test_a_damaged_run_to_go_on_from_is_a_sentence(text, tmp_path, capsys):
    (tmp_path / "chunk.json").write_text(text)
    assert "chunk.json is damaged: " in refused(["train", "--resume", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (OSError(28, "No space left on device", "x.bin"), "x.bin: the system reports: No space left on device."),
        (MemoryError(), "this machine has too little memory for this."),
    ],
)
def test_what_the_system_refuses_is_a_sentence(error, reported, capsys):
    def command():
        raise error

    assert _run(command) == 2
    assert capsys.readouterr().err == f"replaylab: {reported}\n"


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        _run(lambda: 1 // 0)


@pytest.mark.parametrize("arguments", ["study list", "--help", "study run --help"])
def test_who_stops_reading_is_no_error(arguments):
    command = f"{sys.executable} -m replaylab {arguments} | true"
    process = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert process.stderr == ""


def test_a_terminal_without_some_letters_is_no_error(tmp_path):
    (tmp_path / "study.toml").write_text(
        TINY.replace("{more}", "").replace("steps = 200", "steps = 200\n") + "[x]\nπ = 1"
    )
    process = subprocess.run(
        [sys.executable, "-m", "replaylab", "study", "run", "study.toml"],
        capture_output=True,
        cwd=tmp_path,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
        timeout=60,
    )
    assert (process.returncode, process.stderr.count(b"\n")) == (2, 1)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--save-every", "100"], "train: --save-every needs a folder; give --save, or leave it out"),
        (["--save-every", "0", "--save", "kept"], "train: --save-every must be at least 1, but got 0"),
        (
            ["--resume", "kept", "--steps", "3"],
            "train: --steps must be left out with --resume: the run continues as it",
        ),
        (["--resume", "kept", "--first-seed", "3"], "train: --first-seed must be left out with --resume"),
        (["--resume", "kept", "--strategy", "uniform"], "train: --strategy must be left out with --resume"),
        (["--resume", "kept", "--env", "CartPole-v1"], "train: --env must be left out with --resume"),
        (["--resume", "kept", "--first-seed", "0"], "train: --first-seed must be left out with --resume"),
        (["--resume", "kept", "--eval-episodes", "10"], "train: --eval-episodes must be left out with --resume"),
        (["--learner-options", "gamma=0.9", "gamma=0.5"], "--learner-options must give each name once, but got gamma"),
        (["--strategy-options", "a=1", "a=1"], "--strategy-options must give each name once, but got a 2 times"),
        (["--env-options", "n=1", "n=2"], "--env-options must give each name once, but got n 2 times"),
        (["--transforms", "n_step:steps=2,steps=3"], "each name once, but got steps 2 times"),
        (["--resume", "kept", "--save", "other"], "train: --save must be left out with --resume"),
    ],
)
def test_options_that_would_change_nothing_are_refused(more, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in refused(["train", *more], capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["study", "rnu"], "`replaylab study` has no command `rnu`; did you mean `run`?"),
        (["stdy", "run"], "`replaylab` has no command `stdy`; did you mean `study`?"),
        (["study", "xyz"], "`replaylab study` has no command `xyz`. Commands: run, report"),
    ],
)
def test_a_misspelt_command_gets_a_suggestion(words, suggested, capsys):
    assert suggested in refused(words, capsys)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("study run quick --workers two", "must be a whole number, or None, but got 'two'"),
        ("train --seeds 2.5", "must be a whole number, or None, but got '2.5'"),
        ("study run quick --checkpoint-every soon", "must be a number, or None, but got 'soon'"),
    ],
)
def test_an_option_that_must_be_a_number_names_the_rule(words, rule, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    with pytest.raises(SystemExit) as left:
        cli.main(words.split())
    assert left.value.code == 2
    printed = capsys.readouterr().err
    assert rule in printed
    assert "class '" not in printed
