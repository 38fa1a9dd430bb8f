"""A folder of results elsewhere: another path, no right to write, no code that it was made with."""

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from replaylab.study import Study
from tests.study.results.test_resolved_overrides import sb3_study
from tests.study.tiny import pretend, pretended, rows

LIBC = ctypes.CDLL(None)


def obey_permissions() -> None:
    """Take from root, if that is who runs the tests, the power to write where permissions forbid it (Linux)."""
    LIBC.prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


READER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from replaylab.study import Study
    try:
        Path(sys.argv[1], "x").write_text("")
    except OSError:
        print("cannot write")
    study = Study.from_folder(sys.argv[1])
    print(len(study.present), study.query("select count(*) from results").fetchall()[0][0], len(study.answers()))
    print("8 of 8 runs" in study._repr_html_())
    print(study.report(sys.argv[2]).name)
    from replaylab.commands.main import main
    from replaylab.study.report import report
    report.SECTIONS = ()  # which were written just now
    assert main(["study", "report", sys.argv[1], "--out", sys.argv[2]]) == 0
    print("imported:", *sorted({"torch", "gymnasium", "replaylab.learners.training.train"} & set(sys.modules)))
    for name in ("stable_baselines3", "sb3_contrib", "torch", "gymnasium"):
        sys.modules[name] = None
    if Path(sys.argv[3]).exists():
        study = Study.from_folder(sys.argv[3])
        print(*[one.id for one in study.chunks if one in study.present])
        print(study.report(figure_files=False).name)
    """
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """Return the output of a process that reports a moved study, and the state of the folder before and after.

    And the ids of the chunks of the other study, whose learner is Stable-Baselines3's, if that is installed.
    """
    base = tmp_path_factory.mktemp("moved")
    other = sb3_study(base / "theirs").chunks if find_spec("stable_baselines3") else []
    if other:
        pretend(sb3_study(base / "theirs"), 20.0)
    tiny = pretended(base / "here", 20.0)
    expected = rows(tiny)
    moved_to = base / "far" / "away"
    moved_to.parent.mkdir()
    shutil.move(tiny.folder, moved_to)
    before = contents(moved_to)
    folders = [moved_to, *(f for f in moved_to.rglob("*") if f.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        reported = subprocess.run(
            [sys.executable, "-c", READER, str(moved_to), str(base / "report"), str(base / "theirs")],
            preexec_fn=obey_permissions if os.name == "posix" else None,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=base,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        ).stdout.split("\n")
    finally:
        for folder in folders:
            folder.chmod(0o755)
    return (
        reported,
        (before, expected),
        (contents(moved_to), rows(Study.from_folder(moved_to))),
        [chunk.id for chunk in other],
    )


def test_a_moved_read_only_folder_reports(moved):
    reported, (before, expected), (after, read), _ = moved
    assert reported[:2] == ["cannot write", f"4 {len(expected['seed'])} 2"]
    assert reported[2:4] == ["True", "report.html"]
    assert after == before
    np.testing.assert_equal(read, expected)


def test_a_report_needs_no_training_code(moved):
    reported, *_ = moved
    assert [line for line in reported if line.startswith("imported:")] == ["imported:"]


def test_a_folder_is_reported_where_no_training_code_is(moved):
    reported, *_, ids = moved
    if not ids:
        pytest.skip("needs Stable-Baselines3: pip install 'replaylab[sb3]'")
    assert reported[-3:] == [" ".join(ids), "report.html", ""]


def test_results_of_an_environment_that_is_not_here(tmp_path, undrawn):
    pretended(tmp_path, 20.0, environments=["nowhere:Gone-v0"])
    opened = Study.from_folder(tmp_path)
    assert len(opened.answers()) == 2
    assert opened.report(figure_files=False).is_file()
