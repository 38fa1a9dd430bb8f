"""Damaged results: named wherever they are read, set aside and run again by the next run."""

import json
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from replaylab.commands import main as cli
from replaylab.errors import SpecError, StorageError
from replaylab.study import InProcess, Study
from replaylab.study.results import records
from replaylab.study.results.folder import StudyFolder
from replaylab.study.results.store import damage, read_metadata
from tests.study.tiny import pretended, rows, sections, study

DAMAGES = {
    "truncated": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "flipped": lambda file: file.write_bytes(_flipped(file.read_bytes(), file.stat().st_size // 3)),
    "emptied": lambda file: file.write_bytes(b""),
    "other bytes": lambda file: file.write_bytes(bytes(range(256))),
    "other JSON": lambda file: file.write_text('[{"a": 1e999}, null]'),
    "nested": lambda file: file.write_text("[" * 100_000),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}
TABLES = {
    "environments": ["FrozenLake-v1"],
    "learners": {"q": {"type": "q_learning", "batch_size": 4}},
    "measures__every": 0,
}


def _flipped(content: bytes, at: int, bit: int = 0) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Study:
    tiny = pretended(tmp_path_factory.mktemp("whole"), 5.0, **TABLES)
    for chunk in tiny.chunks:
        timing = {"seconds": 1.5, "environment_steps": 600}
        records.write(tiny.folder / "timing" / f"{chunk.id}.json", timing)
    with sections():
        tiny.report(tiny.folder, figure_files=False)
    return tiny


@pytest.fixture
def copied(complete, tmp_path) -> Study:
    """A copy that may be damaged."""
    return Study(complete.spec, Path(shutil.copytree(complete.folder, tmp_path / "copy")))


def test_any_changed_bit_and_any_lost_end_is_seen(copied):
    file = copied.file_of(copied.chunks[0])
    content, chance = file.read_bytes(), random.Random(3)
    assert damage(file) is None
    for at in (0, 4, *range(5, len(content), 53), len(content) - 1):
        file.write_bytes(_flipped(content, at, chance.randrange(8)))
        assert damage(file), f"byte {at}"
        file.write_bytes(content[:at])
        assert damage(file), f"cut at {at}"
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in (*range(footer - 32, footer + 8), *range(len(content) - 8, len(content))):
        file.write_bytes(_flipped(content, at))
        assert damage(file), f"byte {at} of the checksum, or of what says where it is"


def test_rows_of_other_settings_under_a_file_s_name_are_seen(copied):
    file, other = (copied.file_of(p) for p in copied.chunks[:2])
    shutil.copy(other, file)
    with pytest.raises(StorageError, match="it holds the rows of other settings than its name says"):
        copied.results()


def test_a_file_without_a_checksum_is_damaged(copied):
    file = copied.file_of(copied.chunks[0])
    pq.write_table(pq.read_table(file), file, compression="zstd")
    with pytest.raises(StorageError, match="its checksum is missing or does not match its contents"):
        copied.results()


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", ["study.json", "machine.json", "timing", "runs"])
def test_a_report_of_damaged_results_is_a_sentence(copied, name, kind, capsys, no_sections):
    file = {
        "timing": copied.folder / "timing" / f"{copied.chunks[0].id}.json",
        "runs": copied.file_of(copied.chunks[0]),
    }.get(name, copied.folder / name)
    DAMAGES[kind](file)
    code = cli.main(["study", "report", str(copied.folder), "--out", str(copied.folder / "out"), "--no-figure-files"])
    reported = capsys.readouterr().err
    if kind == "a folder" and name != "study.json":
        assert code == 0  # as if it were not there
        return
    assert code == 2
    assert str(file) in reported
    assert reported.startswith("replaylab: ")
    assert reported.count("\n") == 1


@pytest.mark.parametrize("name", ["runs", "timing", "machine.json"])
def test_a_report_without_some_records_is_there(copied, name, capsys, no_sections):
    path = copied.folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    code = cli.main(["study", "report", str(copied.folder), "--out", str(copied.folder / "out"), "--no-figure-files"])
    assert code == (2 if name == "runs" else 0)
    assert "holds no results of these settings yet" in capsys.readouterr().err or name != "runs"


@pytest.mark.parametrize("kind", ["flipped", "a folder"])
def test_a_run_sets_damaged_rows_aside_and_trains_them_again(copied, kind):
    victim = copied.chunks[1]
    file = copied.file_of(victim)
    DAMAGES[kind](file)
    for used in (copied.results, copied.report, copied.estimate) if kind != "a folder" else ():
        with pytest.raises(StorageError, match=f"^{file} is damaged: .*`replaylab study run` moves what is damaged"):
            used()
    summary = copied.run(executor=InProcess())
    assert summary.complete
    assert [p.id for p in summary.ran] == [victim.id]
    (damaged,) = summary.damaged
    assert (damaged.file, damaged.moved_to) == (file, copied.folder / "damaged" / file.name)
    assert damaged.moved_to.exists()
    assert damage(file) is None
    assert len(copied.present) == len(copied.chunks)
    assert copied.run(executor=InProcess()).damaged == ()


def test_what_is_damaged_twice_is_kept_twice(copied, capfd):
    file = copied.file_of(copied.chunks[0])
    for _ in range(2):
        file.write_bytes(b"damaged")
        StudyFolder(copied.spec, copied.folder).set_aside_damaged()
    stem = copied.chunks[0].id
    assert sorted(f.name for f in (copied.folder / "damaged").iterdir()) == [f"{stem}.1.parquet", f"{stem}.parquet"]


def test_damaged_rows_of_a_smaller_study_are_seen(complete, copied):
    """Their settings cannot be read any more, so they are named rather than left out."""
    larger = study(copied.folder, **TABLES, seeds=6, chunk_size=3)
    file = copied.file_of(copied.chunks[0])
    assert read_metadata(file)["identity"]["seeds"] == [0, 1]
    assert len(larger.present) > 0
    file.write_bytes(b"damaged")
    with pytest.raises(StorageError, match=f"^{file} is damaged"):
        larger.results()
    assert [damaged.file for damaged in StudyFolder(larger.spec, larger.folder).set_aside_damaged()] == [file]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"tiny"', "{}", "\0", "[" * 100_000])
def test_a_damaged_record_of_the_study_is_not_overwritten(copied, text):
    record = copied.folder / "study.json"
    record.write_text(text)
    with pytest.raises(SpecError, match=r"study.json: is damaged, so it does not tell whether .* remove study.json"):
        copied.run()
    assert record.read_text() == text


def test_a_folder_with_patterns_in_its_name_is_read(complete, tmp_path):
    for name in ("a[1]", "a1", "what*", "what ever?"):
        shutil.copytree(complete.folder, tmp_path / name)
    for name in ("a[1]", "what*"):
        assert len(rows(Study.from_folder(tmp_path / name))["seed"]) == len(rows(complete)["seed"])


@pytest.mark.parametrize(
    ("shape", "record"),
    [
        (records.Timing, {"seconds": "3"}),
        (records.Reports, {"seeds": [], "planned": [None]}),
        (records.Reports, {"seeds": [["1"]]}),
    ],
)
def test_records_of_other_types_are_damaged(shape, record, tmp_path):
    (tmp_path / "record.json").write_text(json.dumps(record))
    with pytest.raises(StorageError, match="is damaged"):
        records.read(tmp_path / "record.json", shape)


def test_texts_of_others_stay_in_the_folder_of_failures(tmp_path):
    every = {name: {"every": 40} for name in ("evaluation", "logging", "measures")}
    short = {"budget__steps": 40, "seeds": 2, **every}
    tiny, notes = study(tmp_path, **short), tmp_path / "failures" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    failed = notes.parent / f"{tiny.chunks[0].id}.txt"
    failed.write_text("why")
    tiny.run(executor=InProcess())
    assert notes.read_text() == "mine"
    assert not failed.exists()
