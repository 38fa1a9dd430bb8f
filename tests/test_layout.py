"""The rooms of the code: what includes and imports what, where import-linter cannot see it; and none is overfull."""

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("support", "storage", "indexes", "samplers", "replay", "games", "learning", "bindings")
"""From below to above; `games` and `learning` include nothing of the replay."""

APART = {"games": {"support"}, "learning": {"support"}}
MOST = 16


def includes():
    for path in sorted((ROOT / "cpp").glob("*/*.?pp")):
        for folder in re.findall(r'#include "(\w+)/', path.read_text()):
            yield path, folder


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_includes_only_those_below_it(room):
    below = APART.get(room, set(ROOMS[: ROOMS.index(room)])) | {room}
    wrong = [
        f"{path.relative_to(ROOT)} includes {include}/" for path, include in includes() if path.parent.name == room
    ]
    assert not [line for line in wrong if line.split()[-1].rstrip("/") not in below]


def test_every_room_is_known_and_every_include_names_one():
    assert {path.parent.name for path in (ROOT / "cpp").glob("*/*.?pp")} == set(ROOMS)
    assert {include for _, include in includes()} <= set(ROOMS)
    bare = [path for path in (ROOT / "cpp").glob("*/*.?pp") if re.search(r'#include "\w+\.hpp"', path.read_text())]
    assert not bare


def test_no_folder_is_overfull():
    listed = subprocess.run(["git", "ls-files", "src", "cpp"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    if not listed:
        pytest.skip("not a checkout")
    files = [Path(name) for name in listed if (ROOT / name).is_file()]
    assert not {folder: count for folder, count in Counter(path.parent for path in files).items() if count > MOST}


FUNCTIONS, IMPORTS = (ast.FunctionDef, ast.AsyncFunctionDef), (ast.Import, ast.ImportFrom)


@cache
def nodes_of(source):
    """The functions of a module's source, and its imports; expressions, which have none, are not walked through."""
    problems, todo = [], [ast.parse(source)]
    while todo:
        node = todo.pop()
        problems += [node] if isinstance(node, FUNCTIONS + IMPORTS) else []
        todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return problems


IMPORTS_MOST = 12
"""Modules of this package that a file may import; an `__init__.py`, which collects names, may import more."""


def own_imports(path):
    """The modules of this package that a file imports."""
    source = ROOT / "src"
    for node in nodes_of(path.read_text()):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "replaylab":
            place = source / node.module.replace(".", "/")
            for alias in node.names:
                module = (place / f"{alias.name}.py").is_file() or (place / alias.name).is_dir()
                yield f"{node.module}.{alias.name}" if module else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "replaylab")


def test_no_file_imports_too_many_modules():
    files = {path for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"}
    many = {path.relative_to(ROOT).as_posix() for path in files if len(set(own_imports(path))) > IMPORTS_MOST}
    assert not many


def test_no_function_is_too_long():
    """Of 60 lines at most, without its docstring."""
    long = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in nodes_of(path.read_text()):
            if isinstance(node, FUNCTIONS):
                documented = len((ast.get_docstring(node, clean=False) or "").splitlines())
                lines = (node.end_lineno or 0) - node.lineno + 1 - documented
                long += [f"{path.relative_to(ROOT)}: {node.name}, {lines} lines"] if lines > 60 else []
    assert not long


def test_only_distributed_imports_ray():
    wrong = []
    for path in sorted((ROOT / "src/replaylab").rglob("*.py")):
        for node in nodes_of(path.read_text()):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.partition(".")[0] == "ray" for name in names) and "distributed" not in path.parts:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong


OF_THE_CORE = {
    "distributed/replay/reader.py": {"concatenate"},  # a copy of arrays, for the replay in shards
    "envs/cartpole.py": {"step_cart_poles"},
    "envs/minatar.py": {"MinAtar"},
    "learners/api/exploration.py": {"epsilon_greedy"},
    "learners/dqn/perceptrons.py": {"QLearners"},
    "learners/tabular/temporal_difference.py": {"update_tables"},
}
"""Parts of the compiled core that the laboratory uses: its games and learners, not its replay."""


def core_imports(source):
    """The names that a module's source takes of `replaylab._core`; the whole of it: "_core"."""
    for node in nodes_of(source):
        if isinstance(node, ast.ImportFrom) and node.module == "replaylab._core":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "replaylab":
            yield from (alias.name for alias in node.names if alias.name == "_core")
        elif isinstance(node, ast.Import):
            yield from ("_core" for alias in node.names if alias.name == "replaylab._core")


def test_the_laboratory_takes_only_the_cores_games_and_learners():
    package = ROOT / "src" / "replaylab"
    files = {path.relative_to(package): path.read_text() for path in package.rglob("*.py")}
    importers = {path.as_posix(): set(core_imports(text)) for path, text in files.items() if path.parts[0] != "replay"}
    assert {path: names for path, names in importers.items() if names and path != "__init__.py"} == OF_THE_CORE


@pytest.mark.parametrize(
    "line", ["from replaylab import _core", "import replaylab._core", "from replaylab._core import Replay as R"]
)
def test_the_test_of_the_core_can_fail(line):
    assert set(core_imports(line)) <= {"_core", "Replay"}
    assert list(core_imports(line))


@pytest.mark.parametrize(("module", "works"), [("replaylab.watch", True), ("replaylab.study.results.store", False)])
def test_watching_needs_no_duckdb(module, works):
    code = f"import sys; sys.modules['duckdb'] = None; import {module}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode == 0) == works, run.stderr
