"""The command line: help, exit codes, and what is printed where."""

import os
import re
import signal
import subprocess
import sys
from functools import partial, partialmethod

import pyarrow.parquet as pq
import pytest

import replaylab
from replaylab.commands import main as cli
from replaylab.study import Study
from replaylab.study.execution import progress
from replaylab.study.results.store import SCHEMA
from tests.study.conftest import undrawn as undrawn

TINY = """
name = "tiny"
environments = ["CartPole-v1"{more}]
seeds = 2
[budget]
steps = 200
[evaluation]
every = 100
episodes = 1
[measures]
every = 0
[learners.dqn]
type = "dqn"
hidden = [8]
batch_size = 8
learning_starts = 20
[strategies.uniform]
type = "uniform"
[strategies.none]
type = "none"
"""


TABULAR = TINY.replace("CartPole-v1", "FrozenLake-v1").replace('dqn"\nhidden = [8]', 'q_learning"').replace("dqn", "q")
"""Its worker processes do not import PyTorch, which takes longer than the training."""


@pytest.fixture
def tiny(tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(TABULAR.format(more=""))
    return file


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ([], "replaylab study run quick"),
        (["study"], "replaylab study run quick"),
        (["study", "run"], "replaylab study run quick"),
        (["study", "report"], "replaylab study report results/quick"),
        (["study", "new"], "replaylab study new mine"),
        (["study", "list"], "replaylab study list"),
        (["study", "show"], "replaylab study show quick"),
        (["watch"], "replaylab watch runs/mine"),
        (["train"], "replaylab train --env CartPole-v1 --strategy prioritized --seeds 10 --steps 50000"),
    ],
)
def test_every_help_has_an_example(command, example, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, "--help"])
    assert caught.value.code == 0
    assert f"Example: {example}" in capsys.readouterr().out


def test_the_version_is_reported(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"replaylab {replaylab.__version__}\n"
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "--version prints the version" in capsys.readouterr().out


def test_the_version_is_reported_without_the_lab_extra():
    code = "import sys; sys.modules['tyro'] = None; from replaylab.commands.main import main; sys.exit(main())"
    process = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, f"replaylab {replaylab.__version__}\n")


def test_defaults_are_visible(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for default in ("(default: CartPole-v1)", "(default: uniform)", "None: 50,000", "(default: 10)"):
        assert default in shown


@pytest.mark.usefixtures("undrawn")
def test_a_study_from_file_to_report(tiny, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 1e6)  # no lines in between, however slow the machine is
    out = tmp_path / "out"
    assert cli.main(["study", "run", str(tiny), "--out", str(out), "--workers", "2"]) == 0
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    opening = [f"reading the study {tiny}", "checking 2 cells", "4 runs to do, 800 environment steps, 2 workers."]
    assert lines[:3] == opening
    assert sum(line.startswith("finished FrozenLake-v1 · q · ") for line in lines) == 2
    assert lines[-1] == f"report: {out / 'report.html'}"
    assert lines[-3:-1] == Study.from_folder(out).answers()
    assert lines[-4] == "writing the report"
    assert len(set(lines)) == len(lines)
    assert printed.err == ""

    assert cli.main(["study", "run", str(tiny), "--out", str(out), "--no-report"]) == 0
    expected = f"reading the study {tiny}\n0 runs in 0 s, 4 were there already: {out}\n"
    assert capfd.readouterr().out == expected

    assert cli.main(["study", "report", str(out), "--no-figure-files"]) == 0
    reported = capfd.readouterr().out.splitlines()
    assert reported[-1] == f"report: {out / 'report.html'}"
    assert reported[:-1] == ["writing the report", *Study.from_folder(out).answers()]


def test_a_dry_run_tells_and_leaves_nothing(tiny, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(Study, "estimate", partialmethod(Study.estimate, seconds=0.2))
    out = tmp_path / "out"
    assert cli.main(["study", "run", str(tiny), "--out", str(out), "--workers", "1", "--dry-run"]) == 0
    printed = capfd.readouterr()
    assert "0 runs are there already; 4 to do in 2 chunks, 800 steps\n" in printed.out
    assert "\nexpected time: " in printed.out
    assert "\nexpected disk: " in printed.out
    assert printed.err == ""
    assert not out.exists()


@pytest.mark.usefixtures("undrawn")
def test_a_failing_environment_exits_with_1_and_its_traceback(tmp_path, capfd):
    file = tmp_path / "tiny.toml"
    file.write_text(TABULAR.format(more=', "tests.commands.failing:FailsNumbered-v0"'))
    assert cli.main(["study", "run", str(file), "--out", str(tmp_path / "out"), "--workers", "1"]) == 1
    printed = capfd.readouterr()
    assert printed.err.count("Traceback (most recent call last)") >= 2
    assert "RuntimeError: it broke" in printed.err
    assert "FAILED tests.commands.failing:FailsNumbered-v0 · q · uniform · 2 seeds from 0" in printed.err
    assert "report: " in printed.out


def test_list_names_the_shipped_studies(capsys):
    assert cli.main(["study", "list"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["name", "question", "environments", "runs", "time", "here"]
    assert re.search(r"^quick +Which replay +CartPole-v1 +80 +about \d+ min", printed, re.MULTILINE)


def test_show_names_strategies_contrasts_and_files(capsys):
    assert cli.main(["study", "show", "taxi"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("taxi: Does replay speed up Q-learning on Taxi")
    assert "\nbudget: 90 runs of 1,000 episodes, 30 seeds each\n" in printed
    assert "\n  replay (uniform replay): uniform, " in printed
    assert "\n  early learning: uniform replay vs no replay" in printed
    assert re.search(r"^file: .*studies/taxi.toml$", printed, re.MULTILINE)


def test_train_prints_evaluations_and_writes_rows(tmp_path, capsys):
    file = tmp_path / "rows.parquet"
    command = "train --strategy prioritized --strategy-options alpha=0.7 --learner-options hidden=[8]"
    command += (
        f" learning_starts=100 max_grad_norm=none --seeds 2 --first-seed 5 --steps 400 --eval-every 200 --out {file}"
    )
    assert cli.main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "CartPole-v1 · dqn · prioritized · 2 seeds from 5, 400 steps each"
    assert [line.split(" steps")[0].strip() for line in lines[1:3]] == ["200", "400"]
    assert lines[3].startswith("final return ")
    assert lines[3].endswith("interquartile mean over 2 seeds with its 95 % interval")
    assert lines[5] == f"rows: {file}"
    table = pq.read_table(file)
    assert table.schema.names == SCHEMA.names
    assert set(table.column("seed").to_pylist()) == {5, 6}


def test_the_module_runs_as_a_command():
    process = subprocess.run([sys.executable, "-m", "replaylab", "--version"], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, f"replaylab {replaylab.__version__}\n")


def test_importing_the_command_line_is_light():
    code = (
        "import sys, replaylab.commands.main;"
        "heavy = {'torch', 'gymnasium', 'duckdb', 'pyarrow', 'matplotlib', 'scipy', 'pydantic', 'rich'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("missing", ["tyro", "pydantic", "duckdb", "jinja2"])
def test_a_missing_lab_extra_names_the_install_command(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None;"
        "from replaylab.commands.main import main; sys.exit(main(['study', 'report', 'x']))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 2
    assert process.stderr.endswith('not installed. Run: pip install "replaylab[lab]"\n')
    assert process.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("sent", "word", "code", "workers"),
    [(signal.SIGINT, "interrupted", 130, "2"), (signal.SIGTERM, "terminated", 143, "1")],
)
def test_ctrl_c_and_sigterm_end_the_workers(sent, word, code, workers, tiny, tmp_path):
    tiny.write_text(tiny.read_text().replace("steps = 200", "steps = 100_000_000"))
    command = [sys.executable, "-m", "replaylab", "study", "run", str(tiny), "--out", str(tmp_path / "out")]
    command += ["--workers", workers]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a job in the background is born deaf to it
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    try:
        assert [run.stdout.readline() for _ in range(2)] == [f"reading the study {tiny}\n", "checking 2 cells\n"]
        assert any(line.startswith("4 runs to do") for line in run.stdout)  # after lines in between, on a slow machine
        run.send_signal(sent)
        _, err = run.communicate(timeout=60)
    finally:
        run.kill()  # not left training if a line differs
    assert err.startswith(f"replaylab: {word}; {tmp_path / 'out'} holds the results of 0 of 4 runs and checkpoints of ")
    assert run.returncode == code


def test_sigterm_in_a_fork_ends_only_the_fork():
    with cli._Sigterm() as sigterm:
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not sigterm.received


def test_train_saves_and_goes_on(tmp_path, capsys):
    options = ["--env", "FrozenLake-v1", "--learner", "sarsa", "--episodes", "20"]
    options += ["--seeds", "2", "--eval-episodes", "1"]
    complete, again = tmp_path / "whole.parquet", tmp_path / "again.parquet"
    saving = ["--save", str(tmp_path / "run"), "--save-every", "5"]
    assert cli.main(["train", *options, *saving, "--out", str(complete)]) == 0
    assert "20 episodes each" in capsys.readouterr().out
    assert cli.main(["train", "--resume", str(tmp_path / "run"), "--out", str(again)]) == 0
    assert "10 of 40 episodes in " in capsys.readouterr().out  # of each seed the last five
    left, right = (pq.read_table(file).to_pydict() for file in (complete, again))
    assert left == right
    assert cli.main(["train", "--resume", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err
    (tmp_path / "run" / "run.json").unlink()
    assert cli.main(["train", "--resume", str(tmp_path / "run")]) == 2
    assert "run holds no checkpoint to continue from: there is no run.json in it" in capsys.readouterr().err


def test_what_is_there_is_not_overwritten(tmp_path, capsys):
    run, mine = tmp_path / "run", tmp_path / "mine.py"
    options = ["train", "--env", "FrozenLake-v1", "--learner", "sarsa", "--episodes", "20", "--seeds", "1"]
    assert cli.main([*options, "--save", str(run)]) == 0
    saved = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert cli.main([*options, "--strategy", "prioritized", "--save", str(run)]) == 2
    assert f"--save must be a folder without a run, but {run} holds one; continue with it" in capsys.readouterr().err
    mine.write_text("precious")
    assert cli.main([*options, "--out", str(mine)]) == 2
    assert "--out must be a new file, or one of Parquet to replace, but" in capsys.readouterr().err
    assert mine.read_text() == "precious"
    assert saved == {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}


def test_tables_are_trained_without_pytorch(tmp_path):
    options = ["train", "--env", "FrozenLake-v1", "--learner", "sarsa", "--steps", "60", "--seeds", "2"]
    code = f"import sys; from replaylab.commands import main; assert main.main({options}) == 0; "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)


def test_train_saves_the_agents_where_no_checkpoint_can_be(tmp_path, capsys, monkeypatch):
    """As with Atari, whose emulator's random stream cannot be reached."""
    monkeypatch.setattr("replaylab.envs.env_state.possible", lambda env: False)
    options = ["train", "--env", "FrozenLake-v1", "--learner", "q_learning", "--steps", "100", "--seeds", "2"]
    assert cli.main([*options, "--save", str(tmp_path)]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "agents-0.npz",
        "agents-1.npz",
        "chunk.json",
        "saving.json",
    ]
    assert cli.main([*options, "--save", str(tmp_path / "other"), "--save-every", "50"]) == 2
    assert "a checkpoint needs an environment that can continue exactly" in capsys.readouterr().err
