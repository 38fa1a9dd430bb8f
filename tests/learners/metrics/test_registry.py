"""One table of metrics, in which every name is found once."""

import subprocess
import sys

import pytest

from replaylab.learners.metrics.registry import METRICS, REGISTRY, Metric, MetricsRegistry, taken


def test_every_metric_has_a_name_of_its_own_and_says_what_it_is():
    names = [one.name for one in METRICS]
    assert len(set(names)) == len(names)
    assert len({one.title for one in METRICS}) == len(METRICS)
    for one in METRICS:
        assert one.name.count("/") == 1
        assert one.title
        assert one.unit
        assert one.meaning


def test_a_family_is_found_by_its_number():
    assert REGISTRY["visits/00017"].name == "visits/{state}"
    for name in ("visits/", "visits/x", "visits", "train/td_error_p10", "eval/mean_reward1", ""):
        assert name not in REGISTRY
        with pytest.raises(KeyError):
            REGISTRY[name]


def test_metrics_of_ones_own_stand_beside_the_librarys():
    own = MetricsRegistry([Metric("train/entropy", "Entropy", "nats", "of the policy")])
    assert own["train/entropy"].unit == "nats"
    assert "eval/mean_reward" in own
    assert "train/entropy" not in REGISTRY


def test_metrics_are_found_by_when_they_are_recorded():
    assert [one.name for one in taken("episode")] == ["rollout/ep_rew", "rollout/ep_len"]
    assert all(one.name.startswith("replay/") and one.needs == "measure_every" for one in taken("measures"))


def test_reading_it_needs_no_training_code():
    code = (
        "import sys, replaylab.learners.metrics.registry;"
        "assert not {'torch', 'gymnasium', 'replaylab.learners.training'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
