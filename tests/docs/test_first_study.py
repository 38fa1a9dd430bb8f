"""The stranger's path: the page's files and commands, as they stand, in an empty folder."""

import re
import subprocess
import sys

import pytest

from tests.docs.test_pages import DOCS

PAGE = (DOCS / "start/first-study.md").read_text()
FILES = dict(re.findall(r"^Save this as `(.*?)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^\$ (replaylab .*)$", PAGE, re.MULTILINE)


def command(line, folder):
    """Run a command of the page as the installed program does, without this folder on the path."""
    program = [sys.executable, "-P", "-c", "import sys; from replaylab.commands.main import main; sys.exit(main())"]
    return subprocess.run([*program, *line.split()[1:]], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The folder, and what each command printed."""
    folder = tmp_path_factory.mktemp("stranger")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    answers = {}
    for line in COMMANDS:
        done = command(line, folder)
        assert done.returncode == 0, done.stderr
        answers[line] = done.stdout
    return folder, answers


def test_the_page_has_what_it_promises():
    assert list(FILES) == ["my_sampler.py", "my_study.toml"]
    assert len(COMMANDS) == 2
    assert len(FILES["my_sampler.py"].splitlines()) <= 20


def test_the_verdict_is_read(reported):
    folder, answers = reported
    assert "30 to do in 3 chunks" in answers[COMMANDS[0]]
    ran = answers[COMMANDS[1]]
    assert "30 runs in " in ran
    verdict = next(line for line in ran.splitlines() if line.startswith("Surprising vs uniform, final return"))
    assert re.search(r"higher, \+[\d,.]+ ", verdict)
    assert "report: results/surprise/report.html" in ran
    assert "very_surprising" in (folder / "results/surprise/report.html").read_text()


def test_changed_code_runs_again_and_the_baseline_is_kept(reported):
    folder, _ = reported
    file = folder / "my_sampler.py"
    file.write_text(file.read_text().replace("0.01) **", "0.02) **"))
    code = "from replaylab.study import Study; print(*(p.strategy for p in Study.from_toml('my_study.toml').present))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True) == "uniform\n"
