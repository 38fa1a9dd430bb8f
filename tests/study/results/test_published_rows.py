"""One small file of a finished study's rows gives the same tables and warnings as its complete results."""

import runpy
import shutil
from pathlib import Path

import pytest

from replaylab.errors import SpecError, StorageError
from replaylab.study import Study
from replaylab.study.plan import Chunk
from replaylab.study.results.published_rows import write_published_rows
from replaylab.study.results.store import SCHEMA
from tests.study.tiny import pretend, rows, study, undrawn

SCRIPT = Path(__file__).parents[3] / "docs" / "publish_results.py"
publish = runpy.run_path(str(SCRIPT))["publish"]

CONTRASTS = [
    {"name": "gain", "more": {"strategy": "prioritized"}, "less": {"strategy": "uniform"}, "equivalence": 5.0},
    {
        "name": "updates",
        "more": {"strategy": "prioritized"},
        "less": {"strategy": "uniform"},
        "metric": "train/q_mean",
        "measure": "final",
    },
]


pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Study:
    """Results of all but one chunk, made with two versions of Python."""
    tiny = study(tmp_path_factory.mktemp("results"), seeds=9, chunk_size=3, contrasts=CONTRASTS)
    pretend(tiny, 30.0, versions=[{"python": "3"}, {"python": "4"}])
    tiny.file_of(tiny.present[-1]).unlink()
    with undrawn():
        tiny.report(figure_files=False)
    return tiny


@pytest.fixture(scope="module")
def written(results, tmp_path_factory) -> Path:
    """The published rows, which are copied for each test."""
    folder = tmp_path_factory.mktemp("written")
    publish([results], folder)
    return folder


@pytest.fixture
def published(written, tmp_path) -> Study:
    return Study.from_folder(Path(shutil.copytree(written, tmp_path, dirs_exist_ok=True)))


def tables(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted((folder / "tables").glob("*.csv"))}


def test_tables_and_warnings_are_those_of_the_complete_results(results, published):
    page = published.report(figure_files=False).read_text()
    assert tables(published.folder) == tables(results.folder)
    assert {"budgets.csv", "contrasts.csv", "differences.csv", "levels.csv"} <= set(tables(published.folder))
    assert "3 of 18 runs" in page
    assert "different library versions: python 3 and 4" in page
    assert published.answers() == results.answers()


def test_a_report_writes_no_record_of_its_seeds(published, no_sections):
    published.report(figure_files=False)
    assert {file.name for file in published.folder.iterdir()} == {"rows.parquet", "report.html", "tables"}


def test_only_needed_metrics_are_kept(results, published):
    assert set(rows(results)["metric"]) == set(rows(published)["metric"])
    assert len(rows(published)["metric"]) < len(rows(results)["metric"])


def test_publishing_published_rows_changes_nothing(published, tmp_path):
    before = (tmp_path / "rows.parquet").read_bytes()
    publish([published], tmp_path)
    assert (tmp_path / "rows.parquet").read_bytes() == before


def test_parts_in_several_folders_are_published_as_one(results, published, tmp_path):
    content = (published.folder / "rows.parquet").read_bytes()
    parts = [Study(results.spec, tmp_path / str(k)) for k in range(2)]
    for k, chunk in enumerate(results.present):
        target = parts[k % 2].file_of(chunk)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(results.file_of(chunk).read_bytes())
    joined = tmp_path / "joined"
    publish(parts, joined)
    assert tables(Study.from_folder(joined).report(figure_files=False).parent) == tables(results.folder)
    publish(parts[:1], joined)
    assert len(Study.from_folder(joined).present) == 3
    publish([parts[1], Study.from_folder(joined)], joined)
    assert len(Study.from_folder(joined).present) == len(results.present)
    assert rows(Study.from_folder(joined)) == rows(Study.from_folder(published.folder))
    assert (published.folder / "rows.parquet").read_bytes() == content


def test_timing_records_are_found_by_versions_with_other_ids(results, tmp_path, monkeypatch):
    times = {f"timing/{p.id}": {"seconds": float(i)} for i, p in enumerate(results.present)}
    write_published_rows(tmp_path, results.spec, results.present, SCHEMA.empty_table(), [], times)
    monkeypatch.setattr(Chunk, "id", property(lambda p: f"{p.strategy}-{p.seeds[0]}"))
    again = Study.from_folder(tmp_path)
    assert [again.record(f"timing/{p.id}")["seconds"] for p in again.present] == [0, 1, 2, 3, 4]


def test_published_rows_cannot_be_run(published):
    with pytest.raises(SpecError, match=r"published rows of a finished study, which cannot be continued"):
        published.run(show=False)
    with pytest.raises(SpecError, match="cannot be continued"):
        published.estimate()
    assert [file.name for file in published.folder.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize("place", [0.3, 0.99])
def test_damage_is_reported(published, place):
    file = published.folder / "rows.parquet"
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        Study.from_folder(published.folder).results()


def test_a_folder_with_a_run_is_read_as_a_run(results):
    publish([results], results.folder)
    opened = Study.from_folder(results.folder)
    assert rows(opened) == rows(results)
    (results.folder / "rows.parquet").unlink()
