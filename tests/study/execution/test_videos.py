"""Videos that workers return with their rows, and their place in the report."""

import json
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from replaylab.errors import StorageError
from replaylab.study import InProcess, Spec
from replaylab.study.execution.worker.first_seed_video import FirstSeedVideo
from replaylab.study.plan import plan
from replaylab.study.report import report
from replaylab.study.report.sections import videos
from replaylab.study.results.store import MOST_BYTES, damage, encoded, open_rows, read_video
from replaylab.watch import write_video
from tests.study.tiny import rows, study, table

GAME = "replaylab/MinAtar-Breakout-v1"
SMALL = {"type": "dqn", "hidden": [8], "batch_size": 8, "learning_starts": 20, "capacity": 100}


def of(environment, folder, **changes):
    learner = SMALL | ({"filters": 4} if environment == GAME else {})
    settings = {"environments": [environment], "learners__dqn": learner, "seeds": 2, "chunk_size": 1}
    return study(folder, **{**settings, "budget__steps": 120, "evaluation__every": 60, **changes})


@pytest.fixture(scope="module")
def minatar(tmp_path_factory):
    watched = of(GAME, tmp_path_factory.mktemp("minatar"), watch={"video": 12}, chunk_size=2)
    watched.run(executor=InProcess())
    return watched


@pytest.fixture
def only_videos(monkeypatch):
    """Have reports draw no other section."""
    assert videos.section in report.SECTIONS
    monkeypatch.setattr(report, "SECTIONS", (videos.section,))


def test_each_chunk_returns_its_first_seeds_video(minatar):
    for chunk in minatar.present:
        assert isinstance(read_video(minatar.file_of(chunk)), bytes)
        assert damage(minatar.file_of(chunk)) is None


def test_the_video_is_that_of_the_first_seed(minatar, tmp_path):
    alone = of(GAME, tmp_path, watch={"video": 12}, seeds=[0])
    alone.run(executor=InProcess())
    files = [[watched.file_of(chunk) for chunk in watched.present] for watched in (alone, minatar)]
    assert [read_video(file) for file in files[0]] == [read_video(file) for file in files[1]]


def test_the_report_shows_them(minatar, only_videos):
    page = minatar.report().read_text()
    assert "<h2>Videos</h2>" in page
    assert "img-src data:" in page
    assert page.count('<img alt="Greedy play of ') == 2
    for chunk in minatar.present:
        name = f"greedy_play_replaylab_MinAtar_Breakout_v1_dqn_{chunk.strategy}_0.webp"
        assert f'<a href="figures/{name}">seed 0</a>' in page
        assert (minatar.folder / "figures" / name).read_bytes() == read_video(minatar.file_of(chunk))


def test_a_video_is_no_longer_than_asked_for(minatar, tmp_path):
    for chunk in minatar.present:
        (tmp_path / "greedy.webp").write_bytes(read_video(minatar.file_of(chunk)))
        with Image.open(tmp_path / "greedy.webp") as video:
            assert video.size == (160, 160)
            assert 2 <= video.n_frames <= 13


def test_the_caption_of_a_video_states_no_later_setting(minatar, only_videos, tmp_path):
    longer = of(GAME, minatar.folder, watch={"video": 54_321}, chunk_size=2)
    page = longer.report(tmp_path, figure_files=False).read_text()
    shown = re.search(r'<figure id="greedy_play"[^>]*>(.*?)</figure>', page, re.DOTALL)[1]
    assert shown.count("<img ") == 2
    assert "54,321" not in shown
    assert "as many as watch.video said when the run was trained" in shown


def test_videos_that_would_make_the_page_heavy_are_links(minatar, only_videos, monkeypatch):
    monkeypatch.setattr(videos, "MOST_BYTES", 100)
    page = minatar.report(figure_files=False).read_text()
    assert page.count('<a href="figures/greedy_play_') == 2
    assert "data:image/webp" not in page


def test_each_video_is_a_file_and_the_first_on_the_page(only_videos, tmp_path):
    watched = of(GAME, tmp_path, watch={"video": 12})
    watched.run(executor=InProcess())
    page = watched.report(tmp_path / "page", figure_files=False).read_text()
    assert page.count('<img alt="Greedy play of ') == 2
    written = {file.name: file.read_bytes() for file in (tmp_path / "page" / "figures").iterdir()}
    assert len(written) == 4
    assert sorted(written.values()) == sorted(read_video(watched.file_of(chunk)) for chunk in watched.present)
    assert set(re.findall(r'<a href="figures/([^"]*)">seed [01]</a>', page)) == set(written)


def test_without_videos_nothing_is_added_to_the_rows(only_videos, tmp_path):
    tiny = study(tmp_path, seeds=1, budget__steps=100)
    tiny.run(executor=InProcess())
    files = [tiny.file_of(chunk) for chunk in tiny.present]
    assert [read_video(file) for file in files] == [None, None]
    assert all(set(pq.read_metadata(file).metadata) == {b"replaylab", b"ARROW:schema"} for file in files)
    assert "<h2>Videos</h2>" not in tiny.report(figure_files=False).read_text()


def test_a_video_that_fails_loses_no_rows_and_is_reported(only_videos, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("the <screen> is broken")

    monkeypatch.setattr("replaylab.watch.write_video", broken)
    settings = {"strategies": {"uniform": {"type": "uniform"}}, "budget__steps": 60}
    watched = of(GAME, tmp_path, watch={"video": 2}, **settings)
    assert watched.run(executor=InProcess()).complete
    assert [read_video(watched.file_of(chunk)) for chunk in watched.present] == [
        "RuntimeError: the <screen> is broken"
    ] * 2
    page = watched.report(figure_files=False).read_text()
    assert page.count(f"No video of uniform, {GAME}: RuntimeError: the &lt;screen&gt; is broken") == 1


def test_a_video_too_large_for_a_file_loses_no_rows(only_videos, tmp_path, monkeypatch):
    """Readers of Parquet refuse an entry of more than 100,000,000 letters, and with it the file."""
    written = write_video

    def large(path, *frames):
        path = written(path, *frames)
        path.write_bytes(path.read_bytes() + bytes(75_000_001))
        return path

    monkeypatch.setattr("replaylab.watch.write_video", large)
    settings = {"seeds": 1, "strategies": {"uniform": {"type": "uniform"}}, "budget__steps": 60}
    watched = of(GAME, tmp_path, watch={"video": 2}, **settings)
    assert watched.run(executor=InProcess()).complete
    reason = "it has 75.0 MB, but 70 MB are the most that a file of results can hold of it; lower `watch.video`"
    assert read_video(watched.file_of(watched.present[0])) == reason
    assert f"No video of uniform, {GAME}: {reason}" in watched.report(figure_files=False).read_text()


@pytest.mark.slow
def test_the_largest_video_can_be_read(tmp_path):
    chunk = plan(Spec.from_table(table()))[0]
    columns = {"seed": np.zeros(1, int), "step": np.ones(1, int), "metric": np.array(["m"]), "value": np.ones(1)}
    video = bytes(MOST_BYTES)
    file = tmp_path / f"{chunk.id}.parquet"
    file.write_bytes(encoded(chunk, columns, {}, video))
    assert read_video(file) == video
    assert open_rows([file]).fetchnumpy()["value"].tolist() == [1.0]


TRAINER = """
import json, sys
from replaylab.study import Spec
from replaylab.study.execution.executor import TrainTask
from replaylab.study.execution.worker.perform import perform
from replaylab.study.plan import plan
perform(TrainTask(plan(Spec.from_table(json.loads(sys.argv[1])))[0]), lambda step: None)
assert not {"replaylab.watch", "matplotlib", "torch"} & set(sys.modules)
"""


def test_a_worker_without_videos_imports_no_watch():
    """It took a third of the time in which a worker starts."""
    lake = {"environments": ["FrozenLake-v1"], "learners": {"q": {"type": "q_learning", "batch_size": 4}}}
    lake["budget"] = {"steps": 100}
    subprocess.run([sys.executable, "-c", TRAINER, json.dumps(table(**lake))], check=True)


def test_videos_change_neither_ids_nor_rows(minatar, tmp_path):
    plain = of(GAME, tmp_path, chunk_size=2)
    assert [p.id for p in plain.chunks] == [p.id for p in minatar.chunks]
    plain.run(executor=InProcess())
    assert rows(plain) == rows(minatar)
    assert all(read_video(plain.file_of(chunk)) is None for chunk in plain.present)


def test_videos_are_sealed_with_the_rows(tmp_path):
    chunk = plan(Spec.from_table(table()))[0]
    columns = {"seed": np.zeros(1, int), "step": np.ones(1, int), "metric": np.array(["m"]), "value": np.ones(1)}
    content = encoded(chunk, columns, {}, b"\0\xff" * 9)
    file = tmp_path / f"{chunk.id}.parquet"
    file.write_bytes(content)
    assert read_video(file) == b"\0\xff" * 9
    assert damage(file) is None
    file.write_bytes(content.replace(b"AP8A/wD/", b"AP8A/wD+", 1))
    assert damage(file) == "its checksum is missing or does not match its contents"
    file.write_bytes(b"PAR1")
    with pytest.raises(StorageError, match="is damaged"):
        read_video(file)


@pytest.mark.parametrize("video", [b"\x00\x01video\x00", "ValueError: no", None])
def test_the_video_of_an_ended_seed_survives_a_checkpoint(video):
    hook, resumed = FirstSeedVideo(None), FirstSeedVideo(None)
    hook.video = video
    resumed.restore(hook.state() | {"another hook's": np.zeros(3)})
    assert resumed.video == video
