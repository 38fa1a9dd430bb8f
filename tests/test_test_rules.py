"""The rules of tests/conftest.py: skips that fail in continuous integration, and the tenths of the slow tests."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import tenth

SAMPLE = """
import pytest

@pytest.fixture
def program():
    pytest.skip("no Chromium on the PATH")

def test_in_a_fixture(program): pass

def test_in_the_test(): pytest.skip("no such program on the PATH")

@pytest.mark.skipif(True, reason="needs a C compiler")
def test_by_its_mark(): pass

@pytest.mark.xfail(strict=True)
def test_expected_to_fail(): assert False

def test_without_a_gpu(): pytest.skip("needs a GPU, but PyTorch finds none")

@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_slow(number): pass
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sample = tmp_path_factory.mktemp("sample")
    shutil.copy(Path(__file__).with_name("conftest.py"), sample)
    (sample / "pytest.ini").write_text("[pytest]\nmarkers = slow: x\n  cuda: x\n")
    (sample / "test_sample.py").write_text(SAMPLE)
    (sample / "test_module.py").write_text('import pytest\npytest.importorskip("no_such_module")\n')
    return sample


def outcomes(folder, *options, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    ran = subprocess.run([*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Counter(re.findall(r"^(PASSED|FAILED|SKIPPED|ERROR|XFAIL)\b", ran.stdout, re.MULTILINE)), ran.stdout


def test_only_listed_reasons_skip_in_ci(folder):
    counts, text = outcomes(folder, "-m", "not slow", CI="true")
    assert counts == {"FAILED": 1, "ERROR": 3, "SKIPPED": 1, "XFAIL": 1}, text
    for reason in ("no Chromium on the PATH", "no such program on the PATH", "needs a C compiler", "could not import"):
        assert f"Skipped in continuous integration: {reason}" in text
    assert "MAY_BE_SKIPPED_IN_CI" in text


def test_elsewhere_every_skip_gives_its_reason(folder):
    counts, text = outcomes(folder, "--slow-tenth", "3")
    chosen = sum(tenth(f"test_sample.py::test_slow[{number}]") == 3 for number in range(40))
    assert counts == {"SKIPPED": 5, "XFAIL": 1, "PASSED": chosen}, text
    assert "no such program on the PATH" in text


def test_the_tenths_share_the_slow_tests():
    sizes = Counter(tenth(f"tests/test_file.py::test[{number}]") for number in range(1000))
    assert set(sizes) == set(range(10))
    assert min(sizes.values()) > 50
