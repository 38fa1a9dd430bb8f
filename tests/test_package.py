"""The public face: names, version, typing, and an import that stays light."""

import ast
import importlib.metadata
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import get_origin

import pytest

import replaylab
import replaylab.errors
import replaylab.replay

LIST_MODULES = "import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"


def modules_after(code):
    """Top-level modules outside the standard library that `code` imports in a fresh interpreter."""
    run = subprocess.run(
        [sys.executable, "-c", LIST_MODULES.format(code=code)], capture_output=True, text=True, check=True
    )
    tops = {name.partition(".")[0] for name in run.stdout.split()}
    return {name for name in tops - set(sys.stdlib_module_names) if not name.startswith(("_", "cython"))}


class TestImportIsLight:
    @pytest.mark.parametrize("module", ["replaylab", "replaylab.replay", "replaylab.errors"])
    def test_numpy_only(self, module):
        assert modules_after(f"import {module}") <= {"replaylab", "numpy"}

    def test_a_buffer_in_use_is_as_light(self):
        code = (
            "import replaylab as r; b = r.ReplayBuffer(4, {'x': r.Field()}); b.add(x=1.0); b.sample(2); "
            "b.extend(x=[1.0, 2.0]); repr(b); next(b.batches(2, prefetch=1))"
        )
        assert modules_after(code) <= {"replaylab", "numpy"}

    def test_the_test_can_fail(self):
        assert "gymnasium" in modules_after("import replaylab, gymnasium")


class TestWithoutTheCore:
    """An import where `replaylab._core` is not built."""

    BLOCKED = "import sys; sys.modules['replaylab._core'] = None; import {module}"

    def said(self, module, *flags, **options):
        code = self.BLOCKED.format(module=module)
        run = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, **options)
        assert run.returncode
        return run.stderr.splitlines()[-1]

    @pytest.mark.parametrize("module", ["replaylab", "replaylab.replay", "replaylab.envs"])
    def test_the_error_says_how_to_build_it(self, module):
        source = Path(replaylab.__file__).parents[2]
        rule = "build it, with CMake and a C++ compiler: python -m pip install "
        reported = self.said(module)
        assert reported.startswith("replaylab.errors.MissingCoreError: replaylab's compiled core cannot be imported (")
        assert reported.partition(rule)[2] == f'"{source}"'
        assert (source / "pyproject.toml").is_file()

    def test_away_from_the_source_it_names_the_package(self, tmp_path):
        package = tmp_path / "lib" / "site-packages" / "replaylab"
        package.mkdir(parents=True)
        for name in ("__init__.py", "errors.py"):
            (package / name).write_text((Path(replaylab.__file__).parent / name).read_text())
        assert self.said("replaylab", "-S", cwd=package.parent).endswith(
            "python -m pip install --force-reinstall --no-cache-dir replaylab"
        )


@pytest.mark.parametrize("module", [replaylab, replaylab.replay, replaylab.errors], ids=lambda module: module.__name__)
class TestPublicNames:
    def test_sorted(self, module):
        assert list(module.__all__) == sorted(module.__all__)
        assert len(set(module.__all__)) == len(module.__all__)

    def test_all_equals_the_public_names(self, module):
        """Every public name that the module's own source brings in, submodules apart, is in `__all__`."""
        public = set()
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                public |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.col_offset == 0:
                public.add(node.name)
        public = {name for name in public if not name.startswith("_")}
        assert public == {name for name in module.__all__ if not name.startswith("_")}

    def test_each_exists_and_is_documented(self, module):
        for name in module.__all__:
            value = getattr(module, name)
            alias = get_origin(value) is not None  # of a type, documented where it is defined and in the reference
            assert name.startswith("__") or alias or value.__doc__, name


def test_the_face_of_the_design():
    assert {"Batch", "Field", "ReplayBuffer"} <= set(replaylab.__all__)
    samplers = {"Combined", "Online", "Prioritized", "Sampler", "SlidingWindow", "Uniform"}
    schedules = {"Constant", "Exponential", "Linear", "Schedule", "Schedules", "Table"}
    assert samplers | schedules | {"Batch", "Field", "ReplayBuffer"} <= set(replaylab.replay.__all__)


def test_version():
    assert replaylab.__version__ == importlib.metadata.version("replaylab")


def test_typed():
    assert files("replaylab").joinpath("py.typed").is_file()


def test_every_error_is_a_replay_error_and_a_built_in():
    built_ins = {
        "ConfigError": ValueError,
        "DtypeError": TypeError,
        "EmptyBufferError": LookupError,
        "FieldError": ValueError,
        "IdError": ValueError,
        "MissingCoreError": ImportError,
        "MissingExtraError": ImportError,
        "NonFiniteError": ValueError,
        "OverSizeError": MemoryError,
        "PriorityError": ValueError,
        "ShapeError": ValueError,
        "SnapshotError": ValueError,
        "SpecError": ValueError,
        "StorageError": OSError,
    }
    assert {"ReplayError", *built_ins} == set(replaylab.errors.__all__)
    for name, built_in in built_ins.items():
        error = getattr(replaylab.errors, name)
        assert issubclass(error, replaylab.errors.ReplayError)
        assert issubclass(error, built_in)
