"""Number of cores that a process may use."""

import math
import os

import pytest

from replaylab.study.results import provenance


def test_the_affinity_is_respected(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7}, raising=False)
    monkeypatch.setattr(provenance, "_quota", lambda: math.inf)
    assert provenance.cores() == 3


@pytest.mark.parametrize(("quota", "cores"), [(0.5, 1), (1.5, 2), (2.0, 2), (64.0, 3)])
def test_the_limit_of_a_container_is_rounded_up(quota, cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7}, raising=False)
    monkeypatch.setattr(provenance, "_quota", lambda: quota)
    assert provenance.cores() == cores


@pytest.mark.parametrize(
    ("files", "groups", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, "0::/\n", 1.5),
        ({"cpu.max": "max 100000\n"}, "0::/\n", math.inf),
        ({"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "max 100000\n"}, "0::/a/b\n", 4.0),
        ({"cpu/x/cpu.cfs_quota_us": "50000\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, "3:cpu,cpuacct:/x\n0::/\n", 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "3:cpu:/\n2:memory:/y\n", math.inf),
        ({"cpu.max": "nonsense\n"}, "0::/\n", math.inf),
        ({}, "", math.inf),
    ],
)
def test_limits_are_read_from_control_groups(files, groups, expected, tmp_path):
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    (tmp_path / "own").write_text(groups)
    assert provenance._quota(tmp_path / "cgroup", tmp_path / "own") == expected
