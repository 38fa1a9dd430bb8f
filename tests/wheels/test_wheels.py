"""Draws as recorded, and what is written about wheels agrees with itself; `make test-wheel` builds them."""

import doctest
import re
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from replaylab import _core
from tests.replay.compiled import COMPILER, NEEDS_COMPILER
from tests.wheels import golden, readme
from tests.wheels.check_wheel import example

ROOT = Path(__file__).parents[2]
CASES = list(golden.cases())


@pytest.mark.parametrize(("sampler", "transforms", "line"), CASES, ids=[case[0][0] for case in CASES])
def test_draws_are_as_recorded(sampler, transforms, line):
    """On every processor, in every wheel; `make test-aarch64` makes the same draws on another one."""
    assert golden.draws(sampler, transforms) == line


@NEEDS_COMPILER
@pytest.mark.slow
def test_draws_without_python_are_as_recorded():
    run = subprocess.run([ROOT / "tests/wheels/emulated.sh", COMPILER], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(CASES)} cases" in run.stdout


def test_every_sampler_of_the_core_is_recorded():
    assert {sampler[0] for sampler, _, _ in CASES} == set(_core.sampler_kinds())


def test_the_comparison_can_fail():
    kind, options, parts = next(sampler for sampler, _, _ in CASES if sampler[0] == "prioritized")
    other = (kind, options | {"exponent": options["exponent"] * (1 + 2**-20)}, parts)
    assert golden.draws(other, {}) not in {line for *_, line in CASES}


def test_the_example_a_wheel_is_tried_with():
    assert "update_priorities" in example()
    imports = [line.split()[1] for line in example().splitlines() if line.startswith(("import", "from"))]
    assert {name.partition(".")[0] for name in imports} == {"numpy", "replaylab"}, "needs NumPy alone"


@pytest.mark.parametrize("page", readme.PAGES)
def test_first_command_installs_what_the_page_imports(page):
    """`make test-readme` follows the page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    code = "\n".join(block[1] for block in readme.BLOCK.finditer(text))
    imports = re.findall(r"^(?:>>> )?(?:import|from) (\w+)", code, re.MULTILINE)
    assert "." in readme.packages(text)
    assert set(imports) <= {"numpy", "replaylab", *readme.packages(text)}


@pytest.mark.parametrize("code", ["assert 1 == 2", ">>> 1 + 1\n3\n"])
def test_a_wrong_block_of_readme_fails(code, tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text(f"```python\n{code}\n```\n")
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    with pytest.raises((AssertionError, doctest.DocTestFailure)):
        readme.run_blocks("README.md")


def test_each_version_that_is_built_is_one_that_may_be_installed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"
    least = settings["project"]["requires-python"].removeprefix(">=3.")
    assert [build for build in settings["tool"]["cibuildwheel"]["build"] if build.startswith(f"cp3{least}-")]
    assert "STABLE_ABI FREE_THREADED" in (ROOT / "CMakeLists.txt").read_text()


@pytest.mark.slow
def test_the_source_distribution_is_complete(tmp_path):
    """All that is in the repository, so that it builds, tests and documents itself alone."""
    from scikit_build_core.build import build_sdist

    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    if not listed:
        pytest.skip("not a checkout")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        archive = tmp_path / build_sdist(str(tmp_path))
    with tarfile.open(archive) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()}
    assert set(listed) - held == set()
