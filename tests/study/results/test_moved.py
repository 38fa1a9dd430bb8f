"""A folder of results elsewhere: another path, no right to write, no code that it was made with."""

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np

from replaylab.study import Study
from tests.study.tiny import pretended, rows

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
    """
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_a_folder_that_was_moved_and_may_not_be_written_to_reports(tmp_path):
    made = pretended(tmp_path / "here", 20.0)
    expected = rows(made)
    there = tmp_path / "far" / "away"
    there.parent.mkdir()
    shutil.move(made.folder, there)
    before = contents(there)
    folders = [there, *(f for f in there.rglob("*") if f.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        reported = subprocess.run(
            [sys.executable, "-c", READER, str(there), str(tmp_path / "report")],
            preexec_fn=obey_permissions if os.name == "posix" else None,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=tmp_path,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        ).stdout.split("\n")
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert reported[:2] == ["cannot write", f"4 {len(expected['seed'])} 2"]
    assert reported[2:4] == ["True", "report.html"]
    assert contents(there) == before
    np.testing.assert_equal(rows(Study.from_folder(there)), expected)


def test_the_records_of_the_machine_are_not_needed(tmp_path):
    made = pretended(tmp_path, 20.0)
    for record in ("machine.json", "timing", "failures"):
        found = tmp_path / record
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)
    opened = Study.from_folder(tmp_path)
    assert opened.present == made.chunks
    assert opened.report().is_file()


def test_results_of_an_environment_that_is_not_here(tmp_path):
    pretended(tmp_path, 20.0, environments=["nowhere:Gone-v0"])
    opened = Study.from_folder(tmp_path)
    assert len(opened.answers()) == 2
    assert opened.report().is_file()
