"""The stranger's path: the page's files and commands, as they stand, in an empty folder; and with fewer steps."""

import re
import subprocess
import sys
from contextlib import redirect_stdout
from functools import partialmethod
from io import StringIO

import pytest

from replaylab import study
from replaylab.commands import main as cli
from replaylab.study import InProcess, LocalProcesses, Study
from tests.docs.test_pages import DOCS, SAVED
from tests.study import tiny

PAGE = (DOCS / "start/first-study.md").read_text()
FILES = dict(SAVED.findall(PAGE))
COMMANDS = re.findall(r"^\$ (replaylab .*)$", PAGE, re.MULTILINE)


def as_it_stands(folder):
    """Run the commands as the installed program does, without the folder on the path; return what each printed."""
    program = [sys.executable, "-P", "-c", "import sys; from replaylab.commands.main import main; sys.exit(main())"]
    answers = {}
    for line in COMMANDS:
        done = subprocess.run([*program, *line.split()[1:]], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answers[line] = done.stdout
    return answers


def shorter(folder):
    """Run a tenth of the study's steps, in one worker, with empty figures; return what each command printed."""
    file = folder / "my_study.toml"
    assert "steps = 2_000" in file.read_text()
    file.write_text(file.read_text().replace("steps = 2_000", "steps = 200").replace("every = 200", "every = 100"))
    answers = {}
    with pytest.MonkeyPatch.context() as patch, tiny.undrawn():
        patch.chdir(folder)
        patch.setattr(sys, "path", [place for place in sys.path if place])
        patch.setattr(Study, "estimate", partialmethod(Study.estimate, seconds=0.2))
        patch.setattr(Study, "report", partialmethod(Study.report, figure_files=False))
        for line, executor in zip(COMMANDS, (InProcess(), LocalProcesses(1)), strict=True):
            patch.setattr(study, "LocalProcesses", lambda workers, executor=executor: executor)
            with redirect_stdout(StringIO()) as printed:
                assert cli.main(line.split()[1:]) == 0
            answers[line] = printed.getvalue()
    sys.modules.pop("my_sampler")
    return answers


@pytest.fixture(scope="module", params=["shorter", pytest.param("as it stands", marks=pytest.mark.slow)])
def reported(request, tmp_path_factory):
    """The folder, what each command printed, and whether every step was taken."""
    folder = tmp_path_factory.mktemp("stranger")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    is_complete = request.param == "as it stands"
    return folder, (as_it_stands if is_complete else shorter)(folder), is_complete


def test_the_page_has_what_it_promises():
    assert list(FILES) == ["my_sampler.py", "my_study.toml"]
    assert len(COMMANDS) == 2
    assert len(FILES["my_sampler.py"].splitlines()) <= 20


def test_the_verdict_is_read(reported):
    folder, answers, is_complete = reported
    assert "30 to do in 3 chunks" in answers[COMMANDS[0]]
    ran = answers[COMMANDS[1]]
    assert "30 runs in " in ran
    verdict = next(line for line in ran.splitlines() if line.startswith("Surprising vs uniform, final return"))
    assert re.search(r"higher, \+[\d,.]+ " if is_complete else r"inconclusive, [+−\d][\d,.]* ", verdict)
    assert "report: results/surprise/report.html" in ran
    assert "very_surprising" in (folder / "results/surprise/report.html").read_text()


def test_changed_code_runs_again_and_the_baseline_is_kept(reported):
    folder, *_ = reported
    file = folder / "my_sampler.py"
    file.write_text(file.read_text().replace("0.01) **", "0.02) **"))
    code = "from replaylab.study import Study; print(*(p.strategy for p in Study.from_toml('my_study.toml').present))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True) == "uniform\n"
