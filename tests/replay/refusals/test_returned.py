"""Results of users' functions, schedules and methods: one rule for all, and an error that names the function."""

from dataclasses import dataclass
from datetime import date

import numpy as np
import pytest

from replaylab import ReplayBuffer, replay
from replaylab.errors import ConfigError, DtypeError, NonFiniteError, PriorityError, ShapeError
from tests.replay.buffers import GOALS, Even, filled, refused, transition

NOT_NUMBERS = [
    "x",
    None,
    date(2026, 1, 1),
    np.datetime64("2026-01-01"),
    1j,
    object,
    [1.0, 2.0, 3.0],
    [[1.0], [1.0, 2.0]],
]
DTYPES = ["S1", "U1", "O", "M8[s]", "m8[s]", "c8", "V4"]


@dataclass(frozen=True)
class Odd(replay.Schedule):
    value: object
    ends: object = (0.25, 1.0)

    def __call__(self, progress):
        return self.value

    @property
    def bounds(self):
        return self.ends


class TestSchedules:
    RULE = r"^the schedule Odd, called with 0.5, must return a number within its bounds, 0.25 to 1.0, but returned "

    @pytest.mark.parametrize("value", [*NOT_NUMBERS, np.nan, np.inf, 1.1, 0.2, True], ids=repr)
    def test_values(self, value):
        priorities = replay.Priorities(4, sampler=replay.Prioritized(beta=Odd(value)), seed=0)
        priorities.extend(4)
        for ask in (
            lambda: filled(replay.Prioritized(beta=Odd(value))).sample(2, progress=0.5),
            lambda: filled(replay.Recency(eta=Odd(value))).sample(2, progress=0.5),
            lambda: filled(replay.Recency(eta=Odd(value))).probabilities([1], progress=0.5),
            lambda: filled(replay.Mixture((replay.Uniform(), replay.Recency(eta=Odd(value))))).sample(2, progress=0.5),
            lambda: replay.as_schedule(Odd(value))(0.5),
            lambda: priorities.sample(2, progress=0.5),
        ):
            with pytest.raises(ConfigError, match=self.RULE):
                ask()

    @pytest.mark.parametrize("value", [0.25, 1, np.float32(0.5), np.array(0.75), 1.0 + 1e-15])
    def test_numbers_are_taken(self, value):
        assert replay.as_schedule(Odd(value))(0.5) == value
        assert filled(replay.Prioritized(beta=Odd(value))).sample(2, progress=0.5).weight.tolist() == [1, 1]

    @pytest.mark.parametrize("ends", ["x", "ab", None, 0.5, (1.0,), (1.0, 0.5), (0.0, np.nan), (0.0, 1j), (0, 1, 2)])
    def test_bounds(self, ends):
        for ask in (lambda: replay.Prioritized(beta=Odd(0.5, ends)), lambda: replay.as_schedule(Odd(0.5, ends))):
            with pytest.raises(ConfigError, match=r"^`bounds` of Odd must return two finite numbers, the smaller one"):
                ask()


def hindsight(*functions):
    """Return a draw of 4 rows, all of them relabelled."""
    fields = transition() | {"obs": GOALS, "next_obs": GOALS}
    buffer = ReplayBuffer(9, fields, transforms=(replay.Hindsight(*functions, ratio=1e300),), seed=0)
    obs = {key: np.zeros(2) for key in GOALS}
    buffer.add(obs=obs, next_obs=obs, reward=0, terminated=False, truncated=False)
    return lambda: buffer.sample(4)


def zeros(achieved, desired, info):
    return np.zeros(len(achieved), bool)


def method(name, value):
    @dataclass(frozen=True)
    class Mine(Even):
        pass

    setattr(Mine, name, lambda self, *args: value)
    return filled(Mine(), 4, 6)


def scores(value):
    @dataclass(frozen=True)
    class Best(replay.TopScores):
        def scores(self, view):
            return value

    return filled(Best(), 4, 6)


RETURNED = {
    "`score` of LaBER must return one score for each row of the pool, shape (8,)": lambda value: (
        lambda: filled(replay.LaBER(lambda pool: value)).sample(2)
    ),
    "`score` of Oracle must return one number for each of 4 ids": lambda value: (
        lambda: filled(replay.Oracle(lambda ids: value), 4, 6).sample(2)
    ),
    "`scores` of Best must return one number for each of 4 ids": lambda value: lambda: scores(value).sample(2),
    "`distribution` of Mine must return 4 chances that sum to 1": lambda value: (
        lambda: method("distribution", value).sample(2)
    ),
    "`draw` of Mine must return the ids of 2 stored steps": lambda value: lambda: method("draw", value).sample(2),
    "`weights` of Mine must return 2 weights, one a row": lambda value: lambda: method("weights", value).sample(2),
    "`compute_reward` of Hindsight must return one value a row, shape (4,)": lambda value: hindsight(
        lambda *_: value, zeros
    ),
    "`compute_terminated` of Hindsight must return one value a row, shape (4,)": lambda value: hindsight(
        zeros, lambda *_: value
    ),
}
"""The message, and a call in which the function returns a value."""


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
@pytest.mark.parametrize("rule", RETURNED)
def test_what_is_no_array_of_numbers(rule, value):
    with pytest.raises((DtypeError, ShapeError)) as caught:
        RETURNED[rule](value)()
    assert str(caught.value).startswith(rule)
    assert ", but returned" in str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RETURNED)
def test_arrays_of_another_dtype(rule, dtype):
    rows = 2 if "2 " in rule else 8 if "(8,)" in rule else 4
    refused(DtypeError, rule, RETURNED[rule](np.zeros(rows, dtype)))


LABER, ORACLE, _, DISTRIBUTION, DRAW, WEIGHTS, REWARD, ENDED = RETURNED
WRONG = [
    (DISTRIBUTION, [0.5, 0.5], ShapeError, "shape (2,)"),
    (DISTRIBUTION, [0.5] * 4, ConfigError, "a sum of 2.0; divide them by their sum"),
    (DISTRIBUTION, [-1.0, 1.0, 0.5, 0.5], ConfigError, "-1.0 at index 0"),
    (DISTRIBUTION, [np.nan] * 4, ConfigError, "nan at index 0"),
    *((DRAW, ids, ConfigError, "") for ids in ([1, 5], [5, 6], [0, 99])),
    *((DRAW, ids, ShapeError, "") for ids in ([5], [3, 4, 5], [[5, 4]])),
    *((DRAW, ids, DtypeError, "") for ids in ([], [4.0, 5.0])),
    *((WEIGHTS, [1.0, bad], ConfigError, f"{bad} at index 1") for bad in (np.nan, np.inf, 1e300, -0.5)),
    *((WEIGHTS, bad, ShapeError, "") for bad in ([1.0], [[1.0, 1.0]], 1.0)),
    (LABER, np.ones(3), ShapeError, "shape (3,)"),
    *((LABER, [bad] * 8, PriorityError, f"{bad} at index 0") for bad in (np.nan, np.inf, -1.0)),
    (LABER, [1.0] * 7 + [-1.0], PriorityError, "-1.0 at index 7"),
    (ORACLE, [1.0], ShapeError, "[1.0]"),
    (ORACLE, [np.nan] * 4, ConfigError, "nan"),
    *((REWARD, [bad] * 4, NonFiniteError, f"float32 can hold ... {bad} at index 0") for bad in (np.nan, np.inf, 1e300)),
    *((rule, np.zeros(3, bool), ShapeError, "shape (3,)") for rule in (REWARD, ENDED)),
    *((rule, np.zeros((4, 1), bool), ShapeError, "shape (4, 1)") for rule in (REWARD, ENDED)),
    (ENDED, np.ones(4), DtypeError, "booleans ... values of float64"),
]


@pytest.mark.parametrize(("rule", "value", "error", "words"), WRONG)
def test_numbers_that_do_not_fit(rule, value, error, words):
    refused(error, f"{rule} ... but returned ... {words}", RETURNED[rule](value))
    if rule is DISTRIBUTION:
        refused(
            error,
            f"{rule} ... {words}",
            lambda: method("distribution", value).probabilities([5], batch_size=2),
        )


def test_wrong_weights_are_not_counted_as_drawn():
    buffer = method("weights", None)
    with pytest.raises(DtypeError):
        buffer.sample(2)
    assert buffer.stats().samples == 0


@pytest.mark.parametrize("weights", [[0, 3], (True, False), np.array([0.5, 2.0], np.float32)], ids=str)
def test_weights_that_are_taken(weights):
    batch = method("weights", weights).sample(2)
    assert batch.weight.dtype == np.float32
    np.testing.assert_array_equal(batch.weight, np.asarray(weights, np.float32))


def test_tensors_with_gradients_are_taken():
    torch = pytest.importorskip("torch")
    scores = torch.ones(8, requires_grad=True) * 2
    assert filled(replay.LaBER(lambda pool: scores)).sample(2).weight.tolist() == [1, 1]


def test_an_error_of_a_function_comes_out_and_the_buffer_goes_on():
    def broken(achieved, desired, info):
        raise ZeroDivisionError("mine")

    draw = hindsight(broken, zeros)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="mine"):
            draw()


class TestProgress:
    @pytest.mark.parametrize("value", [*NOT_NUMBERS, np.nan, -0.1, 1.1, True], ids=repr)
    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_functions(self, value, prefetch):
        rule = r"^`progress` must return a number in \[0, 1\] \(0: training begins, 1: it ends\), or one for each repl"
        with pytest.raises(ConfigError, match=rule):
            next(filled().batches(2, prefetch=prefetch, progress=lambda k: value))
        with pytest.raises(ConfigError, match=rule):
            replay.ReplayStream([], filled(), 2, progress=lambda k: value).push({"x": 1})

    def test_one_for_each_replica(self):
        batches = filled(replay.Prioritized(), 4, replicas=2).batches(2, progress=lambda k: [0.0, 0.5])
        assert next(batches).id.shape == (2, 2)
