"""Files on disk: whole or absent, documented, in a fixed order."""

import os
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq

from replaylab.files.atomic import write_text
from replaylab.study.results.folder import sweep
from replaylab.study.results.store import SCHEMA, open_rows, write_chunk
from tests.study.tiny import study


def test_sweep_removes_only_leftovers(tmp_path):
    write_text(tmp_path / "runs" / "kept.parquet", "x")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for number in ("1.x", f"a-{gone.pid}", f"old-{os.getpid()}", f"b-{os.getpid()}"):
        (tmp_path / "runs" / f".{number}.unfinished").write_text("y")
    os.utime(tmp_path / "runs" / f".old-{os.getpid()}.unfinished", (0, time.time() - 4_000))
    sweep(tmp_path)
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"kept.parquet", f".b-{os.getpid()}.unfinished"}


def test_rows_come_sorted_whatever_the_order_they_were_logged_in(tmp_path):
    chunk = study(tmp_path).chunks[0]
    columns = {
        "seed": np.array([1, 0, 0, 0]),
        "step": np.array([5, 9, 2, 2]),
        "metric": np.array(["b", "a", "b", "a"]),
        "value": np.array([1.0, 2.0, np.nan, 4.0]),
    }
    file = tmp_path / study(tmp_path).file_of(chunk).name
    write_chunk(file, chunk, columns, {"python": "3.11"})
    table = pq.read_table(file)
    assert table.column("seed").to_pylist() == [0, 0, 0, 1]
    assert table.column("metric").to_pylist() == ["a", "a", "b", "b"]
    assert table.column("step").to_pylist() == [2, 9, 2, 5]
    assert [f.metadata[b"meaning"] for f in table.schema] == [f.metadata[b"meaning"] for f in SCHEMA]
    assert open_rows([file]).filter("metric = 'a' and seed = 0").order("step").fetchnumpy()["value"].tolist() == [4, 2]


def test_the_same_rows_make_the_same_bytes(tmp_path):
    chunk = study(tmp_path).chunks[0]
    columns = {k: np.array([1, 2]) for k in ("seed", "step", "value")} | {"metric": np.array(["a", "b"])}
    files = [tmp_path / f"{i}.parquet" for i in range(2)]
    for file in files:
        write_chunk(file, chunk, columns, {})
    assert files[0].read_bytes() == files[1].read_bytes()
