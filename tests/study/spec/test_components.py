"""Short names of study files: every public sampler, transform and schedule has one."""

import dataclasses
import re

import pytest

from replaylab import learners, replay, research
from replaylab.errors import SpecError
from replaylab.learners import DQN, SGD, Adam, RMSprop
from replaylab.learners.api.agent_laber import AgentLaBER
from replaylab.learners.dqn.optimizers import Optimizer
from replaylab.replay import Aged, FreshFirst, Linear, Mixture, Prioritized, Uniform
from replaylab.study import Spec
from replaylab.study.spec import components
from replaylab.study.spec.components import LEARNERS, STRATEGIES, TAPES, Part, build, resolve
from tests.study import tiny

WITHOUT = {"Sampler", "CustomSampler", "TopScores", "Transform", "Schedule"}
"""Bases to derive from."""


def public(base):
    kinds = {name: getattr(package, name) for package in (replay, research) for name in package.__all__}
    return {name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, base)} - WITHOUT


@pytest.mark.parametrize(
    ("base", "catalogue", "aliases"),
    [
        (replay.Sampler, STRATEGIES, {"none"}),
        (replay.Transform, components.TRANSFORMS, set()),
        (replay.Schedule, components.SCHEDULES, set()),
    ],
    ids=["samplers", "transforms", "schedules"],
)
def test_every_public_one_has_a_short_name(base, catalogue, aliases):
    assert {components.short_name(name) for name in public(base)} | aliases == set(catalogue)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("RankBased", "rank_based"),
        ("LAP", "lap"),
        ("ReLo", "relo"),
        ("LaBER", "laber"),
        ("NStep", "n_step"),
        ("ByStepsToEnd", "by_steps_to_end"),
    ],
)
def test_short_names(name, short):
    assert components.short_name(name) == short


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("prioritised", {}, f"x.type` must be one of {', '.join(STRATEGIES)}, but got 'prioritised'; did you mean"),
        ("prioritized", {"beta": {"type": "linear", "start": 1.0}}, "`x.beta` needs `end`."),
        (
            "prioritized",
            {"beta": {"type": "linear", "stat": 1.0}},
            "unknown key `x.beta.stat`; did you mean `start`? Allowed here: start, end, until, steps.",
        ),
        (
            "prioritized",
            {"beta": {"start": 0.4}},
            '`x.beta` must have a `type`, such as {type = "linear", start = 0.4, end = 1.0}, but got',
        ),
        (
            "prioritized",
            {"beta": "fast"},
            '`x.beta` must be a number or a schedule, such as {type = "linear", start = 0.4, end = 1.0}, but got ',
        ),
        ("prioritized", {"alpha": 3.0}, "`x`: `alpha` of Prioritized must be in [0, 1], but got 3.0"),
        ("dqn", {"gamma": True}, "`x.gamma` must be a number, but got True."),
        ("dqn", {"gamma": "none"}, "`x.gamma` must be a number, but got 'none'."),
        ("dqn", {"max_grad_norm": "nil"}, "`x.max_grad_norm` must be a number or \"none\", but got 'nil'."),
        ("dqn", {"batch_size": 1.5}, "`x.batch_size` must be a whole number, but got 1.5."),
        ("dqn", {"batch_size": True}, "`x.batch_size` must be a whole number, but got True."),
        ("dqn", {"hidden": [True]}, "`x.hidden.0` must be a whole number, but got True."),
        ("dqn", {"double": 1}, "`x.double` must be true or false, but got 1."),
    ],
)
def test_a_wrong_option_is_reported_with_its_rule(kind, options, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        resolve(Part.of(kind, options), LEARNERS if kind == "dqn" else STRATEGIES, "x", "study.toml")


@pytest.mark.parametrize("kind", sorted(set(STRATEGIES) - {"mixture"}))
def test_each_is_built_and_written_out_as_it_is(kind):
    required = {tape: {"of": "other"} for tape in TAPES}
    required |= {"aged": {"sampler": {"type": "uniform"}, "half_life": 5}, "fresh_first": {"sampler": {"type": "lap"}}}
    part = resolve(Part.of(kind, required.get(kind, {})), STRATEGIES, "strategies.x", "study.toml")
    built = build(part, STRATEGIES)
    assert resolve(part, STRATEGIES, "strategies.x", "study.toml") == part
    assert set(part.options) <= {field.name for field in dataclasses.fields(built)}


class TestNone:
    """An optional setting takes "none", which TOML cannot write otherwise."""

    @pytest.mark.parametrize(
        ("catalogue", "kind", "options", "field"),
        [
            (LEARNERS, "dqn", {"max_grad_norm": "none"}, "max_grad_norm"),
            (LEARNERS, "dqn", {"target_range": "none"}, "target_range"),
            (LEARNERS, "dqn_as_published", {"end_reward": "none"}, "end_reward"),
        ],
    )
    def test_it_is_none(self, catalogue, kind, options, field):
        part = resolve(Part.of(kind, options), catalogue, "x", "study.toml")
        assert part.options[field] is None
        assert getattr(build(part, catalogue), field) is None

    def test_it_stays_a_word_of_settings_that_have_it(self):
        part = resolve(Part.of("prioritized", {"normalize": "none"}), STRATEGIES, "x", "study.toml")
        assert build(part, STRATEGIES).normalize == "none"

    def test_a_varied_setting_may_be_none(self):
        learner = {"type": "dqn", "vary": {"max_grad_norm": ["none", 1.0]}}
        spec = Spec.from_table(tiny.table(learners={"dqn": learner}))
        norms = {name: part.options["max_grad_norm"] for name, part in spec.learners.items()}
        assert norms == {"dqn.max_grad_norm-none": None, "dqn.max_grad_norm-1": 1.0}


class TestOptimizers:
    def part_and_optimizer(self, value):
        part = resolve(Part.of("dqn", {"optimizer": value}), LEARNERS, "learners.dqn", "study.toml")
        assert resolve(part, LEARNERS, "learners.dqn", "study.toml") == part
        return part, build(part, LEARNERS).optimizer

    def test_each_has_its_name(self):
        assert {self.part_and_optimizer(name)[1] for name in components.OPTIMIZERS} == {Adam(), RMSprop(), SGD()}
        public = {name for name in learners.__all__ if isinstance(getattr(learners, name), type)}
        kinds = {n for n in public if issubclass(getattr(learners, n), Optimizer)}
        assert {name.lower() for name in kinds} == set(components.OPTIMIZERS)

    def test_a_name_or_a_table(self):
        part, optimizer = self.part_and_optimizer({"type": "rmsprop", "decay": 0.9})
        assert optimizer == RMSprop(decay=0.9)
        assert part.options["optimizer"] == {"type": "rmsprop", "decay": 0.9, "epsilon": 0.01, "centered": True}
        assert self.part_and_optimizer("sgd")[0].options["optimizer"] == {"type": "sgd", "momentum": 0.0}

    def test_the_default_is_adam(self):
        assert self.part_and_optimizer("adam")[0].options["optimizer"]["type"] == "adam"
        assert build(resolve(Part.of("dqn", {}), LEARNERS, "x", "x"), LEARNERS) == DQN()

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("adamw", r"`learners.dqn.optimizer.type` must be one of adam, rmsprop, sgd, but got .adamw"),
            (3, r'`learners.dqn.optimizer` must be "adam", "rmsprop", "sgd" or a table with a `type`, but got 3'),
            ({"type": "adam", "decay": 0.5}, r"`learners.dqn.optimizer.decay`"),
            ({"type": "rmsprop", "decay": 1.5}, r"`decay` of RMSprop must be in \[0, 1\), but got 1.5"),
        ],
    )
    def test_others_are_refused(self, value, message):
        with pytest.raises(SpecError, match=message):
            self.part_and_optimizer(value)


def test_laber_asks_the_agents():
    assert build(Part.of("laber", {"m": 3}), STRATEGIES) == AgentLaBER(m=3)


class TestMixture:
    PARTS = ({"type": "uniform"}, {"type": "prioritized", "beta": {"type": "linear", "start": 0.1, "end": 1.0}})

    def test_parts_are_tables(self):
        part = resolve(Part.of("mixture", {"parts": list(self.PARTS)}), STRATEGIES, "strategies.x", "study.toml")
        assert build(part, STRATEGIES) == Mixture((Uniform(), Prioritized(beta=Linear(0.1, 1.0))))
        assert part.options["parts"][0] == {"type": "uniform", "replace": True, "stratified": False}
        assert resolve(part, STRATEGIES, "strategies.x", "study.toml") == part

    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            (3, "`strategies.x.parts` must be a list of tables"),
            (["uniform", "greedy"], "`strategies.x.parts` must be a list of tables"),
            ([{"type": "uniform"}, {"type": "prioritize"}], r"parts\[1\].type` .* did you mean `prioritized`"),
            ([{"type": "uniform"}, {"type": "prioritized", "alpa": 1.0}], r"parts\[1\].alpa"),
            ([{"type": "uniform"}, {"type": "mixture"}], r"parts\[1\].type`"),
            ([{"type": "uniform"}, {"type": "mine:Mine"}], r"parts\[1\].type`"),
            ([{"type": "uniform"}], "two or more samplers"),
        ],
    )
    def test_other_parts_are_refused(self, parts, message):
        with pytest.raises(SpecError, match=message):
            resolve(Part.of("mixture", {"parts": parts}), STRATEGIES, "strategies.x", "study.toml")

    def test_what_cannot_be_a_part(self):
        assert not {"mixture", "fresh_first", "laber", "oracle", "none"} & set(components.PARTS)


class TestSamplersOfOneSampler:
    def test_it_is_a_table(self):
        options = {"sampler": {"type": "prioritized", "beta": 0.5}, "half_life": 20_000, "window": "none"}
        part = resolve(Part.of("aged", options), STRATEGIES, "strategies.x", "study.toml")
        aged = Aged(Prioritized(beta=0.5), half_life=20_000)
        assert build(part, STRATEGIES) == aged
        assert part.options["sampler"]["alpha"] == 0.6
        assert resolve(part, STRATEGIES, "strategies.x", "study.toml") == part
        nested = {"sampler": {"type": "aged", **part.options}}
        assert build(Part.of("fresh_first", nested), STRATEGIES) == FreshFirst(aged)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"sampler": "uniform"}, "`strategies.x.sampler` must be a table with a `type`, but got 'uniform'"),
            ({"sampler": {"type": "uniforn"}}, r"`strategies.x.sampler.type` .* did you mean `uniform`"),
            ({"sampler": {"type": "lap"}}, r"`sampler` of Aged must be Uniform\(\) or Prioritized\(\)"),
            ({}, "`strategies.x` needs `sampler`"),
        ],
    )
    def test_others_are_refused(self, options, message):
        with pytest.raises(SpecError, match=message):
            resolve(Part.of("aged", {"half_life": 5, **options}), STRATEGIES, "strategies.x", "study.toml")
