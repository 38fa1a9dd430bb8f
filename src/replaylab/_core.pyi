"""
The compiled core of replaylab: rows, ids, sum tree, random streams, tables of action values.
"""

from collections.abc import Mapping, Sequence
import enum
import types
from typing import Annotated, Any, Final, overload

import numpy
import numpy.typing
from numpy.typing import NDArray


class Retention(enum.Enum):
    """What is kept when there is no more room."""

    FIFO = 0

    RESERVOIR = 1

    ASSIGNED = 2

class SamplerConfig:
    """What the core needs to know of a sampler."""

    def __init__(self, kind: str, options: Mapping[str, float] = {}, parts: Sequence[SamplerConfig] = [], clock: str = '') -> None: ...

    @property
    def kind(self) -> str: ...

    @property
    def feedback(self) -> bool:
        """Whether the core's sampler takes feedback."""

    @property
    def priorities(self) -> str:
        """
        Which array of the sampler's state holds priorities; "" where it keeps none.
        """

    @property
    def episodes(self) -> bool:
        """Whether the core's sampler goes by episodes."""

def sampler_kinds() -> list[str]:
    """The kinds of sampler that the core has."""

class TransformConfig:
    """What the core needs to know of the transforms."""

    def __init__(self) -> None: ...

    @property
    def n_step(self) -> int: ...

    @n_step.setter
    def n_step(self, arg: int, /) -> None: ...

    @property
    def gamma(self) -> float: ...

    @gamma.setter
    def gamma(self, arg: float, /) -> None: ...

    @property
    def last(self) -> list[int]: ...

    @last.setter
    def last(self, arg: Sequence[int], /) -> None: ...

    @property
    def frames(self) -> int: ...

    @frames.setter
    def frames(self, arg: int, /) -> None: ...

    @property
    def repeat(self) -> bool: ...

    @repeat.setter
    def repeat(self, arg: bool, /) -> None: ...

    @property
    def stacked(self) -> list[int]: ...

    @stacked.setter
    def stacked(self, arg: Sequence[int], /) -> None: ...

    @property
    def length(self) -> int: ...

    @length.setter
    def length(self, arg: int, /) -> None: ...

    @property
    def stride(self) -> int: ...

    @stride.setter
    def stride(self, arg: int, /) -> None: ...

    @property
    def burn_in(self) -> int: ...

    @burn_in.setter
    def burn_in(self, arg: int, /) -> None: ...

    @property
    def states(self) -> list[int]: ...

    @states.setter
    def states(self, arg: Sequence[int], /) -> None: ...

    @property
    def strategy(self) -> int: ...

    @strategy.setter
    def strategy(self, arg: int, /) -> None: ...

    @property
    def share(self) -> float: ...

    @share.setter
    def share(self, arg: float, /) -> None: ...

    @property
    def achieved(self) -> list[int]: ...

    @achieved.setter
    def achieved(self, arg: Sequence[int], /) -> None: ...

    @property
    def desired(self) -> list[int]: ...

    @desired.setter
    def desired(self, arg: Sequence[int], /) -> None: ...

    @property
    def derived(self) -> bool: ...

    @derived.setter
    def derived(self, arg: bool, /) -> None: ...

    @property
    def partners(self) -> list[int]: ...

    @partners.setter
    def partners(self, arg: Sequence[int], /) -> None: ...

class StorageConfig:
    """Where rows lie that are not in this process's memory."""

    def __init__(self) -> None: ...

    @property
    def path(self) -> str: ...

    @path.setter
    def path(self, arg: str, /) -> None: ...

    @property
    def declaration(self) -> str: ...

    @declaration.setter
    def declaration(self, arg: str, /) -> None: ...

    @property
    def headroom(self) -> int: ...

    @headroom.setter
    def headroom(self, arg: int, /) -> None: ...

    @property
    def writers(self) -> int: ...

    @writers.setter
    def writers(self, arg: int, /) -> None: ...

    @property
    def memory(self) -> int: ...

    @memory.setter
    def memory(self, arg: int, /) -> None: ...

    @property
    def may_create(self) -> bool: ...

    @may_create.setter
    def may_create(self, arg: bool, /) -> None: ...

    @property
    def may_open(self) -> bool: ...

    @may_open.setter
    def may_open(self, arg: bool, /) -> None: ...

class Frozen:
    """Rows that stay as they are, and all else as it was then."""

    @property
    def state(self) -> dict[str, Any]: ...

    def end(self) -> None: ...

class PendingDraw:
    """A draw to be made ahead."""

    def made(self) -> None: ...

class Replay:
    """The compiled part of a ReplayBuffer."""

    def __init__(self, fields: Sequence[tuple[str, Sequence[int], object, bool]], capacity: int, replicas: int, num_envs: int, sampler: SamplerConfig, streams: Sequence[Sequence[int]], skip_after_end: bool, transforms: TransformConfig, retention: Retention, count_replays: bool, min_size: int, storage: StorageConfig | None, rows_elsewhere: bool) -> None: ...

    add_step: types.MethodDescriptorType = ...

    extend_steps: types.MethodDescriptorType = ...

    def assign(self, slots: object) -> numpy.typing.NDArray[numpy.int64]: ...

    def add(self, values: dict[str, Any], where: Any) -> Any: ...

    def extend(self, values: dict[str, Any], where: Any, steps: int) -> Any: ...

    def sample(self, batch: int, scheduled: Sequence[float], out: dict[str, Any] | None, counted: bool = True) -> dict[str, Any]: ...

    def check_draw(self, batch: int) -> None: ...

    def reseed(self, streams: Sequence[Sequence[int]]) -> None:
        """Give each replica another random stream."""

    def check_streams(self) -> None:
        """
        Raise ConfigError while the random streams are copies of another process's.
        """

    @property
    def streams_copied(self) -> bool: ...

    def set_streams_copied(self) -> None: ...

    def count(self, ids: object) -> None: ...

    def gather(self, ids: object, transformed: bool, aside: bool = False) -> dict[str, Any]: ...

    def blocks(self, ids: object, first_alone: bool) -> numpy.typing.NDArray[numpy.int64]: ...

    def environments(self, ids: object) -> numpy.typing.NDArray[numpy.int64]: ...

    def open_steps(self) -> list[list[int]]: ...

    def ask_to_continue(self, open_matters: bool) -> None:
        """Let `add` raise until it is decided whether open episodes continue."""

    def asks_to_continue(self) -> bool: ...

    def clear(self) -> None: ...

    def next_steps(self) -> tuple[numpy.typing.NDArray[numpy.bool_], numpy.typing.NDArray[numpy.bool_]]: ...

    def end_episode(self, where: object | None) -> None: ...

    def update(self, ids: object | None, values: object, td_errors: bool) -> int: ...

    def write(self, ids: object, values: dict[str, Any]) -> int: ...

    def remove(self, ids: object) -> int: ...

    def probabilities(self, ids: object, batch: int, scheduled: Sequence[float]) -> numpy.typing.NDArray[numpy.float64]: ...

    def totals(self) -> list[tuple[float, float, int]]: ...

    def counts(self) -> tuple[list[int], list[int]]: ...

    def freeze(self) -> Frozen | None: ...

    def frozen_elsewhere(self) -> bool:
        """Whether another thread lets the rows stay as they are."""

    def await_thaw(self) -> None: ...

    def ask(self) -> PendingDraw:
        """
        A draw will be made ahead: until then, what it depends on, or changes, waits.
        """

    def await_draws(self) -> None: ...

    def enter(self) -> None:
        """This thread makes draws, or one that does waits for it."""

    def leave(self) -> None: ...

    def column(self, index: int) -> object: ...

    def state(self) -> dict[str, Any]: ...

    def hand_over(self, successor: Replay) -> None:
        """
        Let steps that are added here by name go to the one that takes this one's place.
        """

    def restore(self, state: dict[str, Any]) -> None: ...

    def bytes(self, replica: int) -> numpy.typing.NDArray[numpy.uint8]: ...

    def packed(self, replica: int) -> list[tuple[int, int, numpy.typing.NDArray[numpy.uint8]]]: ...

    def settle(self) -> None: ...

    def offsets(self) -> list[int]: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...

    @property
    def row_stride(self) -> int: ...

    @property
    def storage_identity(self) -> str: ...

    @property
    def storage_was_unflushed(self) -> bool: ...

    @property
    def nbytes(self) -> int: ...

def concatenate(arrays: Sequence[numpy.typing.NDArray[Any]]) -> numpy.typing.NDArray[Any]: ...

def row_nbytes(fields: Sequence[tuple[str, Sequence[int], object, bool]], transforms: TransformConfig) -> int: ...

def row_offsets(fields: Sequence[tuple[str, Sequence[int], object, bool]]) -> list[int]: ...

def storage_declaration(path: str) -> bytes: ...

def replica_nbytes(fields: Sequence[tuple[str, Sequence[int], object, bool]], capacity: int, num_envs: int, sampler: SamplerConfig, transforms: TransformConfig, retention: Retention, count_replays: bool) -> tuple[int, int]: ...

def update_tables(q: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu')], obs: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], action: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], reward: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], discount: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], next_obs: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], step_size: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], epsilon: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], next_action: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, streams: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu')] | None, td_error: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], q_before: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """
    Update R tables of action values, row after row; see replaylab.learners.tabular.temporal_difference.
    """

@overload
def epsilon_greedy(q: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], epsilon: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | float, draws: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], choices: int) -> NDArray[numpy.int64]: ...

@overload
def epsilon_greedy(q: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], epsilon: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | float, draws: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], choices: int) -> NDArray[numpy.int64]:
    """
    ε-greedy actions (N,) for values (N, A) and ε, a number or (N,); draws (2, N) in [0, 1) say whether to explore, and which of the first `choices` actions or of equally good ones to take.
    """

def usable_kernels() -> list[str]:
    """The kernels this processor can run, best first."""

def use_kernels(name: str) -> None:
    """Use these kernels from now on; for tests."""

class QLearners:
    """R deep Q-learners; see replaylab.learners."""

    def __init__(self, *, shape: Sequence[int], convolutions: Sequence[tuple[int, int, int]], hidden: Sequence[int], actions: int, replicas: int, dueling: bool, is_double: bool, huber: bool, max_grad_norm: float, least: float, most: float, optimizer: tuple[str, float, float, float], tau: float, target_period: int) -> None: ...

    @overload
    def q_values(self, obs: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]:
        """Q(s, ·) (R, N, A) for inputs (R, N, I)."""

    @overload
    def q_values(self, obs: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), order='C', device='cpu', writable=False)]) -> NDArray[numpy.float32]:
        """The same for pixels (R, N, I), seen as shares of 255."""

    @overload
    def update(self, obs: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], action: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], reward: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], next_obs: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], discount: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.float32]]:
        """
        One update of every replica; returns δ, ℓ'(δ) and Q(s, a), each (R, B).
        """

    @overload
    def update(self, obs: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], action: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], reward: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], next_obs: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], discount: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.float32]]:
        """The same from pixels."""

    @property
    def online(self) -> NDArray[numpy.float32]:
        """Parameters (R, P)."""

    @property
    def target(self) -> NDArray[numpy.float32]:
        """The target networks' parameters (R, P)."""

    @property
    def mean(self) -> NDArray[numpy.float32]:
        """The optimizer's average of the gradients (R, P)."""

    @property
    def square(self) -> NDArray[numpy.float32]:
        """The optimizer's average of their squares (R, P)."""

    @property
    def gradients(self) -> NDArray[numpy.float32]:
        """Of the latest update, after clipping (R, P)."""

    @property
    def learning_rates(self) -> NDArray[numpy.float32]:
        """Of the next update (R,), 0 until they are set."""

    @property
    def updates(self) -> int: ...

    @updates.setter
    def updates(self, arg: int, /) -> None: ...

    @property
    def layers(self) -> list[tuple[int, int, int]]:
        """
        Where each layer's weights (outputs, inputs) begin, its biases after them: (begin, outputs, inputs).
        """

def step_cart_poles(variables: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')], action: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], cos: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], sin: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], position_limit: float, angle_limit: float) -> NDArray[numpy.bool_]:
    """
    Move CartPoles (4, E) one time step on in place; return which have left the limits, bool (E,).
    """

class MinAtar:
    """The rules of one MinAtar game; see replaylab.envs.minatar."""

    def __init__(self, game: str) -> None: ...

    def __getstate__(self) -> str: ...

    def __setstate__(self, arg: str, /) -> None: ...

    @property
    def channels(self) -> list[str]: ...

    @property
    def minimal_actions(self) -> list[int]: ...

    @property
    def words(self) -> int:
        """W, uint64 numbers that hold a copy."""

    last_action: Final[int] = ...
    """Which of a copy's words is its last action."""

    def start(self, stream: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.uint64]:
        """A new copy (W,) that draws from a stream (4,)."""

    def step(self, copies: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu')], action: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], skipped: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], sticky_action_prob: float, ramping: bool) -> tuple[NDArray[numpy.float32], NDArray[numpy.bool_]]:
        """
        Move copies (E, W) on in place, except for those skipped; return rewards and terminated, each (E,).
        """

    def observe(self, copies: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu')]) -> NDArray[numpy.bool_]:
        """What is seen of copies, bool (E, channels, y, x)."""

    def find_unsound(self, copies: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu')]) -> int:
        """The first copy that the game cannot be in, or −1."""
