"""The user's own modules are found, packed, and the same files elsewhere."""

import io
import json
import sys
import zipfile
from functools import partial
from xml.etree import ElementTree

import pytest

from replaylab.distributed import own_code
from replaylab.distributed.own_code import digest_of, modules_named, packed, unpacked
from replaylab.errors import ConfigError


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module that imports a package, which imports back; beside them what nobody imports."""
    files = {
        "mine_a.py": "import numpy as np, mine_b.inner as inner\nfrom mine_c import *\n",
        "mine_b/__init__.py": "",
        "mine_b/inner.py": "import json\n\nimport mine_a\nfrom . import other\n",
        "mine_b/other.py": "",
        "mine_b/data.txt": "7",
        "mine_b/__pycache__/inner.pyc": "",
        "mine_b/.git/HEAD": "",
        "mine_c.py": "def late():\n    import mine_d\n",
        "mine_d.py": "import replaylab\nimport no_such_module\nnot Python(\n",
        "mine_e.py": "",
        "mine_f.py": '"""Words:\n\nimport mine_data with care\nfrom mine_data import it\n"""\nimport mine_g.inner\n',
        "mine_data/keys.txt": "secret",
        "mine_g/inner.py": "",
        "mine_g/keys.txt": "secret",
        "mine_g/lib/site-packages/theirs.py": "",
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_travels_is_the_same_elsewhere(mine):
    installed = {"numpy", "json", "sys", "replaylab", "__main__", "no_such_module"}
    content = packed({"mine_a", *installed})
    assert content == packed({"mine_a"})
    assert packed(installed) == b""
    made = unpacked(digest_of(content), lambda: content)
    found = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    inside = {f"mine_b/{name}" for name in ("__init__.py", "inner.py", "other.py", "data.txt")}
    assert found == {"mine_a.py", "mine_c.py", "mine_d.py"} | inside
    for path in found:
        assert (made / path).read_bytes() == (mine / path).read_bytes()
    assert unpacked(digest_of(content), lambda: pytest.fail("it is there")) == made
    assert made.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_no_package_keeps_its_data(mine):
    """Any folder beside the code could be imported, and words of a text import nothing."""
    with zipfile.ZipFile(io.BytesIO(packed({"mine_f"}))) as archive:
        assert archive.namelist() == ["mine_f.py", "mine_g/inner.py"]


def test_what_is_not_unpacked_leaves_nothing(mine):
    content = packed({"mine_e"})

    def slow():
        made = unpacked("1", lambda: content)  # another worker, meanwhile
        assert (made / "mine_e.py").exists()
        return content

    made = unpacked("1", slow)
    assert (made / "mine_e.py").exists()
    with pytest.raises(zipfile.BadZipFile):
        unpacked("2", lambda: b"damaged")
    assert [one.name for one in made.parent.iterdir()] == ["1"]


def test_too_much_is_refused_in_one_line(mine, monkeypatch):
    monkeypatch.setattr(own_code, "LARGEST", 3)
    with pytest.raises(ConfigError, match=r"^the custom modules .* at most 3 bytes, but mine_a has more; move"):
        packed({"mine_a"})


@pytest.mark.skipif(not hasattr(sys, "getswitchinterval") or sys.platform == "win32", reason="has no owners")
def test_a_folder_of_somebody_else_is_not_trusted(mine, monkeypatch):
    own_code.unpacked(digest_of(b""), lambda: packed({"mine_e"}))
    (ours,) = mine.glob("replaylab-code-*")
    monkeypatch.setattr("os.getuid", lambda: int(ours.name.rpartition("-")[2]) + 1)
    ours.rename(mine / f"replaylab-code-{own_code.os.getuid()}")
    with pytest.raises(ConfigError, match="must belong to this user"):
        unpacked("0", lambda: b"")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("lab.parts:Mine", {"lab"}),
        ({"type": "mine:A", "options": [{"x": ["other.b:C"]}, 3, None]}, {"mine", "other"}),
        (["ALE/Pong-v5", "CartPole-v1", "a b:c", "3a:b", ":x", "x:", 7, ("deep:er",)], {"deep"}),
        ([json.loads, {"policy": ElementTree.Element}], {"json", "xml"}),
        (partial(json.dumps, cls=ElementTree.Element), {"json", "xml"}),
    ],
)
def test_names_in_settings(value, names):
    assert modules_named(value) == names
