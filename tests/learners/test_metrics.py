"""One table of metrics, in which every name is found once."""

import subprocess
import sys

import pytest

from replaylab.errors import ConfigError
from replaylab.learners.metrics import METRICS, REGISTRY, Metric, MetricsRegistry, taken


def test_every_metric_has_a_unique_name_and_a_description():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert len({metric.title for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.count("/") == 1
        assert metric.title
        assert metric.unit
        assert metric.meaning


def test_a_family_is_found_by_its_number():
    assert REGISTRY["visits/17"].name == REGISTRY["visits/0"].name == "visits/{state}"
    numbers = ("visits/", "visits/x", "visits/00017", "visits/00", "visits")
    for name in (*numbers, "train/td_error_p10", "eval/mean_reward1", ""):
        assert name not in REGISTRY
        with pytest.raises(KeyError):
            REGISTRY[name]


def test_metrics_of_ones_own_stand_beside_the_librarys():
    registry = MetricsRegistry([Metric("train/entropy", "Entropy", "nats", "of the policy")])
    assert registry["train/entropy"].unit == "nats"
    assert "eval/mean_reward" in registry
    assert "train/entropy" not in REGISTRY


def metric(name, meaning="mine"):
    return Metric(name, "Title", "none", meaning)


@pytest.mark.parametrize("name", ["", "{x}", "a/{x}/mean", "a/{x", "a/x}", "a/{x}{y}", "a/1{x}", 3, None])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(ConfigError, match=r"^`name` of Metric must be a name such as train/entropy, or of a family"):
        metric(name)


@pytest.mark.parametrize(
    "names",
    [
        ("train/own", "train/own"),
        ("train/loss",),
        ("layers/{layer}", "layers/{x}"),
        ("layers/{layer}", "layers/3"),
        ("layers/3", "layers/{layer}"),
        ("visits/7",),
        ("train/td_error_p{percentile}",),
    ],
)
def test_no_name_is_of_two_metrics(names):
    with pytest.raises(ConfigError, match=r"is a name of two metrics, of .* and of .*; give yours another$"):
        MetricsRegistry([metric(name, str(i)) for i, name in enumerate(names)])


def test_one_metric_may_be_listed_twice():
    assert "layers/17" in MetricsRegistry([metric("layers/{layer}"), metric("layers/{layer}")])


def test_metrics_are_found_by_when_they_are_recorded():
    assert [metric.name for metric in taken("episode") if metric.needs != "trace_every"] == [
        "rollout/ep_rew",
        "rollout/ep_len",
    ]
    assert all(metric.name.startswith("replay/") and metric.needs == "measure_every" for metric in taken("measures"))


def test_reading_it_needs_no_training_code():
    code = (
        "import sys, replaylab.learners.metrics;"
        "assert not {'torch', 'gymnasium', 'replaylab.learners.training'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
