"""Studies whose tables are right each by itself, and contradict each other or compare nothing."""

import pytest

from replaylab.errors import SpecError
from replaylab.study import Spec
from tests.study.spec.test_resolve import NAMES, VARIED
from tests.study.tiny import table

TABULAR = {"environments": ["CliffWalking-v1"], "learners": {"q": {"type": "q_learning"}}}
BATCHES = {"environments": ["CliffWalking-v1"], "learners": {"q": {"type": "q_learning", "batch_size": 4}}}


MESSAGES = [
    ({"baseline": "none"}, "`baseline` must name one of the strategies (uniform, prioritized), but got 'none'."),
    (
        {"strategies__prioritized": VARIED, "baseline": "prioritized"},
        f"`baseline` must name one of the strategies ({', '.join(NAMES)}), but got 'prioritized', "
        f"a table that `vary` makes these of.",
    ),
    *(
        (change, "`environments` must list every environment referenced elsewhere in the file, but lacks 'Taxi-v4'.")
        for change in (
            {"strategies__prioritized__environments": ["Taxi-v4"]},
            {"learners__dqn__environments": ["Taxi-v4"]},
            {"env_options": {"Taxi-v4": {"id": "CartPole-v1"}}},
            {"scores": {"Taxi-v4": {"low": 0.0, "high": 1.0}}},
            {"equivalence": {"Taxi-v4": 1.0}},
            {"reference": {"Taxi-v4": {"value": 1.0}}},
        )
    ),
    (
        {"strategies__prioritized__budget": {"episodes": 3}},
        "`strategies.prioritized.budget` must be in steps, as `budget` is.",
    ),
    ({"budget__steps": 50}, "`evaluation.every` must be at most `budget.steps` = 50, but got 100."),
    (
        {"strategies__prioritized__budget": {"steps": 50}},
        "`evaluation.every` must be at most `strategies.prioritized.budget.steps` = 50, but got 100.",
    ),
    (
        {"learners__dqn__vary": {"gamma": [0.9, 0.99]}, "strategies__prioritized__learner": {"gamma": 0.5}},
        "`strategies.prioritized.learner` must not set `gamma`, which `vary` of learners.dqn gives its values; choose "
        "one of them by the strategy's `learners`.",
    ),
]


@pytest.mark.parametrize(("changes", "message"), MESSAGES, ids=[str(c)[:60] for c, _ in MESSAGES])
def test_tables_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(SpecError) as caught:
        Spec.from_table(table(**changes), source="my.toml")
    assert str(caught.value) == f"my.toml: {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            TABULAR,
            r"^study: `learners\.q\.batch_size` must be at least 1 with the strategy 'uniform', which says what is "
            r"replayed, but is 0, so nothing would be; give it, as in batch_size = 32\.$",
        ),
        ({"metrics": ["eval/nope"]}, r"^study: `metrics` must be what runs record, but got 'eval/nope'"),
        ({"metrics": ["eval/mean_rewards"]}, r"did you mean `eval/mean_reward`\?$"),
        (
            {
                "contrasts": [
                    {
                        "name": "a",
                        "more": {"strategy": "prioritized"},
                        "less": {"strategy": "uniform"},
                        "metric": "train/los",
                    }
                ]
            },
            r"^study: `contrasts\.metric` must be what runs record, but got 'train/los'; did you mean `train/loss`\?$",
        ),
        (
            {"metrics": ["replay/sampling_evenness"], "measures__every": 0},
            r"^study: `metrics` must be what runs record, but got 'replay/sampling_evenness', "
            r"which `measures\.every` = 0 "
            r"switches off; set `measures\.every`, or ask for another\.$",
        ),
        ({"metrics": ["eval/held_out_q"]}, r"which `evaluation\.held_out` = 0 switches off"),
        ({"metrics": ["eval/value_error"]}, r"which `evaluation\.value_error` = false switches off"),
        ({"metrics": ["visits/3"]}, r"which `logging\.visits` = false switches off"),
        (
            {
                "contrasts": [
                    {
                        "name": "a",
                        "more": {"strategy": "prioritized"},
                        "less": {"strategy": "uniform"},
                        "metric": "replay/sampling_evenness",
                    }
                ],
                "measures__every": 0,
            },
            r"^study: `contrasts\.metric` must be what runs record, but got 'replay/sampling_evenness', which",
        ),
        ({"metrics": ["visits/00003"]}, r"but got 'visits/00003'; did you mean `visits/3`\?$"),
        (
            {"scores": {"CartPole-v1": {"metric": "eval/mean_rewards", "low": 0.0, "high": 1.0}}},
            r"^study: `scores\.metric` must be what runs record, .* did you mean `eval/mean_reward`\?$",
        ),
        (
            {
                "environments": ["CartPole-v1", "Acrobot-v1"],
                "strategies": {"uniform": {"type": "uniform", "environments": ["CartPole-v1"]}},
            },
            r"^study: `environments` must be in some run each, but no strategy runs on 'Acrobot-v1'; leave it out",
        ),
        (
            {
                "learners__other": {"type": "dqn"},
                "strategies": {"uniform": {"type": "uniform", "learners": ["dqn"]}},
            },
            r"^study: `learners` must be in some run each, but no strategy runs with 'other'; leave it out",
        ),
        (
            {
                "environments": ["CartPole-v1", "Acrobot-v1"],
                "strategies__prioritized__environments": ["CartPole-v1"],
                "equivalence": {"CartPole-v1": 5.0, "Acrobot-v1": 5.0},
            },
            r"^study: `equivalence` must be of environments where strategies are compared with the baseline, "
            r"'uniform', but on 'Acrobot-v1' none is",
        ),
    ],
)
def test_a_study_that_compares_nothing_is_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        Spec.from_table(table(**changes))


def test_parts_without_a_common_environment_are_refused():
    changes = {
        "environments": ["CartPole-v1", "Acrobot-v1"],
        "learners__dqn__environments": ["Acrobot-v1"],
        "strategies": {"uniform": {"type": "uniform", "environments": ["CartPole-v1"]}},
    }
    with pytest.raises(SpecError, match=r"^study: there is nothing to run: no strategy has a learner"):
        Spec.from_table(table(**changes))


@pytest.mark.parametrize("kind", ["none", "online"])
def test_strategies_with_and_without_batches_combine(kind):
    spec = Spec.from_table(table(**TABULAR, strategies={"none": {"type": kind}}, baseline="none"))
    assert spec.runs == 4
    assert Spec.from_table(table(**BATCHES)).runs == 8
    drawing = {"type": "uniform", "learner": {"batch_size": 8}}
    assert Spec.from_table(table(**TABULAR, strategies={"none": {"type": kind}, "uniform": drawing})).runs == 8


def test_metrics_of_unknown_parts_are_taken():
    pytest.importorskip("stable_baselines3")
    changes = {"learners": {"a": {"type": "sb3", "algorithm": "DQN"}}, "metrics": ["train/of_its_own"]}
    assert Spec.from_table(table(**changes)).metrics == ("train/of_its_own",)


def test_metrics_that_are_switched_on_are_taken():
    asked = ("replay/sampling_evenness", "eval/held_out_q", "eval/value_error", "visits/3", "train/loss")
    on = {"evaluation": {"every": 100, "held_out": 8, "value_error": True}, "logging": {"every": 50, "visits": True}}
    assert Spec.from_table(table(**BATCHES, **on, metrics=list(asked))).metrics == asked


def test_a_custom_learner_may_record_a_metric_that_is_off():
    custom = {"environments": ["CliffWalking-v1"], "learners": {"q": {"type": "tests.study.own_parts:HalfAlpha"}}}
    custom["learners"]["q"]["batch_size"] = 4
    spec = Spec.from_table(table(**custom, metrics=["replay/sampling_evenness"], measures__every=0))
    assert spec.metrics == ("replay/sampling_evenness",)
