"""Transforms, derived next observations and retentions that cannot be: a specific error, word for word."""

import numpy as np
import pytest

from replaylab.errors import ConfigError, FieldError, ShapeError
from replaylab.replay import (
    Field,
    FrameStack,
    Hindsight,
    Mixture,
    NStep,
    Permuted,
    Prioritized,
    Recency,
    ReplayBuffer,
    Reservoir,
    Sequence,
    Uniform,
)

FLAGS = {"terminated": Field((), bool), "truncated": Field((), bool)}
FIELDS = {"obs": Field((2,)), "action": Field((), np.int64), "reward": Field(), "next_obs": Field((2,)), **FLAGS}
GOALS = {"achieved_goal": Field((2,)), "desired_goal": Field((2,))}


def refusal(error, *transforms, fields=FIELDS, **options):
    """The message with which a buffer of these transforms is refused."""
    with pytest.raises(error) as caught:
        ReplayBuffer(10, fields, transforms=transforms, **options)
    assert type(caught.value) is error
    return str(caught.value)


def without(*names):
    return {name: field for name, field in FIELDS.items() if name not in names}


def ones(achieved, desired, info):
    return np.ones(len(achieved))


def never(achieved, desired, info):
    return np.zeros(len(achieved), bool)


class TestOptions:
    @pytest.mark.parametrize(
        ("bad", "rule"),
        [
            (0, "at least 1, but got 0"),
            (-1, "at least 1, but got -1"),
            (2.0, "a whole number, but got 2.0"),
            (True, "a whole number, but got True"),
            ("3", "a whole number, but got '3'"),
            (2**31 + 1, "at most 2,147,483,648, but got 2,147,483,649"),
        ],
    )
    def test_counts(self, bad, rule):
        for kind, name in [(NStep, "steps"), (FrameStack, "length"), (Sequence, "length")]:
            with pytest.raises(ConfigError) as caught:
                kind(bad)
            assert str(caught.value) == f"`{name}` of {kind.__name__} must be {rule}"

    @pytest.mark.parametrize("name", ["overlap", "burn_in"])
    def test_counts_that_may_be_zero(self, name):
        with pytest.raises(ConfigError) as caught:
            Sequence(**{name: -1})
        assert str(caught.value) == f"`{name}` of Sequence must be at least 0, but got -1"
        assert getattr(Sequence(**{name: 0}), name) == 0

    def test_an_overlap_leaves_room_to_go_on(self):
        with pytest.raises(ConfigError) as caught:
            Sequence(length=4, overlap=4)
        message = "`overlap` of Sequence must be smaller than `length`, but got (overlap=4, length=4)"
        assert str(caught.value) == message

    @pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
    def test_shares(self, bad):
        for make, name in [
            (lambda: NStep(gamma=bad), "gamma` of NStep"),
            (lambda: Sequence(eta=bad), "eta` of Sequence"),
        ]:
            with pytest.raises(ConfigError) as caught:
                make()
            assert str(caught.value) == f"`{name} must be in [0, 1], but got {bad!r}"

    def test_padding(self):
        with pytest.raises(ConfigError) as caught:
            FrameStack(padding="edge")
        assert str(caught.value) == '`padding` of FrameStack must be "repeat" or "zero", but got \'edge\''

    @pytest.mark.parametrize("bad", ["obs", ()])
    def test_names_of_frames(self, bad):
        with pytest.raises(ConfigError) as caught:
            FrameStack(fields=bad)
        assert str(caught.value) == f"`fields` of FrameStack must be a tuple of field names, but got {bad!r}"

    def test_names_of_states(self):
        with pytest.raises(ConfigError) as caught:
            Sequence(state="hidden")
        assert str(caught.value) == "`state` of Sequence must be a tuple of field names, but got 'hidden'"

    def test_hindsight(self):
        with pytest.raises(
            ConfigError,
            match="`compute_reward` of Hindsight must be a function of \\(achieved_goal, desired_goal, info\\)",
        ):
            Hindsight(3, never)
        with pytest.raises(ConfigError) as caught:
            Hindsight(ones, never, strategy="past")
        strategies = '"final", "future", "episode" or "random"'
        assert str(caught.value) == f"`strategy` of Hindsight must be {strategies}, but got 'past'"
        for bad in (-1.0, float("inf"), float("nan")):
            with pytest.raises(ConfigError) as caught:
                Hindsight(ones, never, ratio=bad)
            assert str(caught.value) == f"`ratio` of Hindsight must be finite and not negative, but got {bad!r}"


class TestTheirNumber:
    def test_one_of_a_kind(self):
        message = refusal(ConfigError, NStep(2), NStep(3))
        assert message == (
            "`transforms` must hold transforms, at most one of a kind, but got "
            "[NStep(steps=2, gamma=0.99), NStep(steps=3, gamma=0.99)]"
        )

    def test_nothing_else(self):
        message = refusal(ConfigError, Uniform())
        assert message.startswith("`transforms` must hold transforms, at most one of a kind, but got [Uniform(")


class TestFieldsTheyNeed:
    @pytest.mark.parametrize(
        ("transform", "name"),
        [(NStep(), name) for name in ("reward", "terminated", "truncated")]
        + [(Hindsight(ones, never), name) for name in ("reward", "terminated")],
        ids=lambda one: one if isinstance(one, str) else type(one).__name__,
    )
    def test_the_outcome(self, transform, name):
        dtype = "float32" if name == "reward" else "bool"
        message = f"{type(transform).__name__} needs the field `{name}` declared as Field((), {dtype})"
        assert refusal(FieldError, transform, fields=without(name)) == message
        assert refusal(FieldError, transform, fields=FIELDS | {name: Field((2,))}) == message

    def test_next_obs(self):
        message = "NStep needs the field `next_obs`, which becomes the last step's"
        assert refusal(FieldError, NStep(), fields=without("next_obs")) == message

    @pytest.mark.parametrize(
        ("transform", "name"), [(NStep(), "discount"), (NStep(), "n_steps"), (Sequence(), "mask")], ids=str
    )
    def test_names_they_make(self, transform, name):
        message = refusal(FieldError, transform, fields=FIELDS | {name: Field()})
        assert message == (f"{type(transform).__name__} makes the column `{name}` itself; give the field another name")

    def test_frames(self):
        message = "FrameStack stacks the field `frame`, which is not declared; declare it, or leave it out"
        assert refusal(FieldError, FrameStack(fields=("frame",))) == message

    def test_a_partner_alike(self):
        message = refusal(FieldError, FrameStack(), fields=FIELDS | {"next_obs": Field((3,))})
        assert message.startswith("`next_obs` must be declared as `obs` is, to be stacked with it, but they are Field(")

    @pytest.mark.parametrize("name", ["reward", "terminated"])
    def test_an_outcome_is_no_frame(self, name):
        message = refusal(FieldError, FrameStack(fields=(name,)))
        assert message.startswith(
            f"FrameStack cannot stack `{name}`, which is an outcome, a goal or a recurrent state; name the fields or"
        )

    def test_a_goal_is_no_frame(self):
        fields = FIELDS | {"obs": GOALS, "next_obs": GOALS}
        message = refusal(FieldError, FrameStack(), Hindsight(ones, never), fields=fields)
        assert message.startswith("FrameStack cannot stack `obs.")

    @pytest.mark.parametrize("name", ["hidden", "reward", "next_obs"])
    def test_states(self, name):
        message = f"`state` of Sequence must name declared fields that hold a state, but got `{name}`"
        assert refusal(FieldError, Sequence(state=(name,))) == message

    def test_goals(self):
        message = refusal(FieldError, Hindsight(ones, never))
        assert message.startswith("Hindsight needs the fields `obs.desired_goal`, `obs.achieved_goal`, ")
        assert message.endswith("all declared alike, but `obs.desired_goal` is missing")
        other = GOALS | {"achieved_goal": Field((3,))}
        message = refusal(FieldError, Hindsight(ones, never), fields=FIELDS | {"obs": GOALS, "next_obs": other})
        assert "but `next_obs.achieved_goal` is Field((3,), float32)" in message


class TestDerived:
    def test_the_choice(self):
        message = '`next_obs` must be "stored" or "derived", but got \'shared\''
        assert refusal(ConfigError, next_obs="shared") == message

    @pytest.mark.parametrize(
        "fields",
        [
            without("next_obs"),
            without("obs"),
            FIELDS | {"next_obs": Field((3,))},
            FIELDS | {"next_obs": Field((2,), np.float64)},
            FIELDS | {"obs": {"a": Field(), "b": Field()}, "next_obs": {"a": Field()}},
            FIELDS | {"obs": {"a": Field()}, "next_obs": {"a": Field(), "b": Field()}},
        ],
    )
    def test_both_are_declared_alike(self, fields):
        message = refusal(FieldError, fields=fields, next_obs="derived")
        assert message.startswith('next_obs="derived" needs the fields `obs` and `next_obs`, declared alike, but got')


class TestRetention:
    def test_the_choice(self):
        message = "`retention` must be Fifo() or Reservoir(), but got 'reservoir'"
        assert refusal(ConfigError, retention="reservoir") == message

    def test_single_transitions(self):
        rule = (
            'a Reservoir keeps single transitions, so neither `transforms` nor next_obs="derived" can look around them'
        )
        assert refusal(ConfigError, NStep(), retention=Reservoir()).startswith(rule)
        assert refusal(ConfigError, next_obs="derived", retention=Reservoir()).startswith(rule)

    @pytest.mark.parametrize("sampler", [Recency(), Permuted(bins=2), Mixture((Uniform(), Recency()))], ids=repr)
    def test_no_order(self, sampler):
        message = refusal(ConfigError, sampler=sampler, retention=Reservoir())
        assert message.startswith(
            f"{type(sampler).__name__} needs the order of the steps, which Reservoir() does not keep; use a sampler"
        )

    @pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.4), Permuted(beta=0.4)], ids=repr)
    def test_samplers_that_need_none(self, sampler):
        buffer = ReplayBuffer(10, FIELDS, sampler=sampler, retention=Reservoir(), seed=0)
        assert buffer.retention == Reservoir()


class TestStacksGiven:
    """`add` and `extend` are told how many frames came."""

    def test_too_few(self):
        buffer = ReplayBuffer(10, {"obs": Field((2,))}, transforms=[FrameStack(3, stacked_input=True)])
        for value, shape in [(np.zeros((2, 2)), "(2, 2)"), (np.zeros(()), "()")]:
            with pytest.raises(ShapeError) as caught:
                buffer.add(obs=value)
            assert str(caught.value) == (
                "field `obs` must be given as stacks of 3 frames along axis 0 (FrameStack(stacked_input=True)), "
                f"but got shape {shape}"
            )
        assert len(buffer) == 0

    def test_an_environment_that_gives_none(self):
        gym = pytest.importorskip("gymnasium")
        with pytest.raises(FieldError) as caught:
            ReplayBuffer.for_env(gym.make("CartPole-v1"), 10, transforms=[FrameStack(3, stacked_input=True)])
        assert str(caught.value) == (
            "FrameStack(length=3, stacked_input=True) needs stacks of 3 frames, but the environment's `obs` has shape "
            "(4,); wrap it in FrameStackObservation, or leave stacked_input out"
        )


class TestFunctionsOfHindsight:
    """What the caller's functions return is checked, and the buffer goes on after it."""

    def filled(self, reward=ones, terminated=never):
        fields = FIELDS | {"obs": GOALS, "next_obs": GOALS}
        buffer = ReplayBuffer(10, fields, transforms=[Hindsight(reward, terminated, ratio=1e9)], seed=0)
        goals = {"achieved_goal": np.zeros((5, 2)), "desired_goal": np.ones((5, 2))}
        flags = np.zeros(5, bool)
        buffer.extend(
            obs=goals, next_obs=goals, action=np.zeros(5, int), reward=np.zeros(5), terminated=flags, truncated=flags
        )
        return buffer

    @pytest.mark.parametrize("shape", [(), (3,), (4, 1)])
    def test_one_value_a_row(self, shape):
        for name, functions in [
            ("compute_reward", {"reward": lambda *_: np.zeros(shape)}),
            ("compute_terminated", {"terminated": lambda *_: np.zeros(shape, bool)}),
        ]:
            with pytest.raises(ShapeError) as caught:
                self.filled(**functions).sample(4)
            assert str(caught.value) == (
                f"`{name}` of Hindsight must return one value a row, of shape (4,), but returned {shape}"
            )

    def test_booleans(self):
        with pytest.raises(ConfigError) as caught:
            self.filled(terminated=ones).sample(4)
        assert str(caught.value) == "`compute_terminated` of Hindsight must return booleans, but returned float64"

    def test_an_error_of_their_own(self):
        def broken(achieved, desired, info):
            raise ZeroDivisionError("mine")

        buffer = self.filled(reward=broken)
        with pytest.raises(ZeroDivisionError, match="mine"):
            buffer.sample(4)
        assert len(buffer) == 5
        assert buffer.get([0])["reward"] == 0


class TestPriorityOfASequence:
    def test_shapes(self):
        sequence = Sequence(length=3, overlap=1, burn_in=2)
        for errors, mask in [((4, 2), (4, 5)), ((4, 3), (3, 3)), ((), (4, 5))]:
            with pytest.raises(ShapeError) as caught:
                sequence.priority(np.zeros(errors), np.ones(mask, bool))
            assert str(caught.value) == (
                "`td_error` must be of shape [R] B 5 (or 3: the learned steps) as `mask` is, but got "
                f"{errors} and {mask}"
            )
