"""Size of real Atari frames in a compressed field, and the cost of compression.

Screens of a random policy in several games, made as DQN sees them (frame skip 4, 84×84, grey), go into a plain and a
compressed buffer; both hold single frames, derive next_obs and give batches of 32 × 4 stacked frames. Needs
``pip install "replaylab[atari]"``; run from the root: ``python -m benchmarks.atari_frames``.
"""

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import harness
from benchmarks.contestant import resident_bytes
from benchmarks.ours import fields_of
from replaylab.replay import Field, FrameStack, ReplayBuffer

GAMES = ("BeamRider", "Breakout", "Enduro", "MsPacman", "Pong", "Qbert", "Seaquest", "SpaceInvaders")
BATCH, STACK, ROUNDS = 32, 4, 15
MILLION = 1_000_000
Frames = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """One line of the table: bytes a frame, their ratio to the frame's own, and microseconds."""

    game: str
    nbytes: float
    ratio: float
    pack: float  # one frame
    unpack: float  # one frame, at random
    plain_sample: float  # a batch of 32 × 4
    packed_sample: float
    alone: float  # ratio of every frame by itself
    previous: float  # ratio of differences to the frame before, which needs all of them back to a whole one


def steps_of(game: str, count: int) -> dict[str, npt.NDArray[Any]]:
    """Play at random and return `count` steps as `extend` takes them."""
    import ale_py
    import gymnasium as gym
    from gymnasium.wrappers import AtariPreprocessing

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gym.register_envs(ale_py)
    env = AtariPreprocessing(gym.make(f"ALE/{game}-v5", frameskip=1))
    env.action_space.seed(0)
    steps: dict[str, list[Any]] = {name: [] for name in fields(False)}
    obs, _ = env.reset(seed=0)
    for _ in range(count):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        for name, value in zip(steps, (obs, action, reward, next_obs, terminated, truncated), strict=True):
            steps[name].append(value)
        obs = env.reset()[0] if terminated or truncated else next_obs
    env.close()
    return {name: np.array(values, fields(False)[name].dtype) for name, values in steps.items()}


def fields(compressed: bool) -> dict[str, Field]:
    """Return the fields of a step."""
    return fields_of(Field((84, 84), np.uint8, compressed=compressed), Field((), np.int64))


def buffer_of(compressed: bool, capacity: int) -> ReplayBuffer:
    """Return an empty buffer of single frames that gives stacks."""
    return ReplayBuffer(capacity, fields(compressed), transforms=(FrameStack(STACK),), next_obs="derived", seed=0)


def best(call: Callable[[], object], calls: int = 1) -> float:
    """Return the microseconds of one call, the least of several rounds: what it takes when left alone."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls)
    return min(times) * 1e6


def measure(game: str, count: int) -> Row:
    """Return one game's line."""
    steps = steps_of(game, count)
    frames = steps["obs"]
    plain, packed = buffer_of(False, count), buffer_of(True, count)
    for buffer in (plain, packed):
        buffer.extend(**steps)
    # Bytes of what is packed, without the last segment's unused rest.
    nbytes = sum(memory.nbytes for _, _, memory in packed._parts.core.packed(0)) / count
    alone = ReplayBuffer(500, {"obs": fields(True)["obs"]})
    chunks = iter(np.resize(np.arange(0, count - 100, 100), ROUNDS))

    def pack() -> None:
        at = next(chunks)
        alone.extend(obs=frames[at : at + 100])

    pack_time = best(pack) / 100
    alone.extend(obs=frames[-500:])
    stored = np.random.default_rng(0).integers(-500, 0, 256) + alone.extend(obs=frames[-1:])[0] + 1
    return Row(
        game,
        nbytes,
        frames[0].nbytes / nbytes,
        pack_time,
        best(lambda: alone.get(stored)) / len(stored),
        best(lambda: plain.sample(BATCH), 5),
        best(lambda: packed.sample(BATCH), 5),
        *ratios_of_lz4(frames),
    )


def ratios_of_lz4(frames: Frames) -> tuple[float, float]:
    """Return what the LZ4 library makes of single frames, and of differences to the frame before."""
    import lz4.block

    differences = frames.copy()
    differences[1:] ^= frames[:-1]
    sizes = (sum(len(lz4.block.compress(limit, store_size=False)) for limit in kind) for kind in (frames, differences))
    alone, previous = sizes
    return frames.nbytes / alone, frames.nbytes / previous


def print_table(rows: list[Row], frames: int) -> None:
    """Print the table and what a million frames take."""
    print(
        f"{'game':14} {'bytes':>6} {'ratio':>6} {'pack µs':>8} {'unpack µs':>9} {'32×4 plain µs':>14} {'packed µs':>10}"
        f" {'alone':>7} {'previous':>9}"
    )
    for row in rows:
        print("{:14} {:6.0f} {:5.1f}× {:8.1f} {:9.1f} {:14.0f} {:10.0f} {:6.1f}× {:8.1f}×".format(*astuple(row)))
    mean = float(np.mean([row.nbytes for row in rows]))
    rest = buffer_of(True, MILLION).nbytes
    print(f"\na million frames (stack {STACK}, next_obs derived):")
    print(f"  plain       {buffer_of(False, MILLION).nbytes / 1e9:6.3f} GB")
    print(
        f"  compressed  {(mean * MILLION + rest) / 1e9:6.3f} GB: {mean:.0f} bytes a frame, the mean of {len(rows)}"
        f" games and {frames:,} frames; {rest / MILLION:.0f} bytes a step for everything else"
    )
    worst = max(row.nbytes for row in rows)
    print(f"  compressed  {(worst * MILLION + rest) / 1e9:6.3f} GB if all were the game that shrinks least")


def fill_a_million() -> None:
    """Fill a plain buffer with a million frames and print by how much the process grew."""
    before = resident_bytes()
    buffer = buffer_of(False, MILLION)
    batch = {name: np.ones((1000, *field.shape), field.dtype) for name, field in fields(False).items()}
    batch |= {"terminated": np.zeros(1000, np.bool_), "truncated": np.zeros(1000, np.bool_)}
    for _ in range(MILLION // 1000):
        buffer.extend(**batch)
    grown = resident_bytes() - before
    print(f"filled: the process grew by {grown / 1e9:.3f} GB, and nbytes is {buffer.nbytes / 1e9:.3f} GB")


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__)
    parser.add_argument("--games", nargs="+", default=GAMES, help="names as in ALE/NAME-v5")
    parser.add_argument("--frames", type=int, default=7000, help="of each game (default: %(default)s)")
    parser.add_argument("--fill", action="store_true", help="also fill a plain buffer with a million frames (7.1 GB)")
    options = parser.parse_args()
    rows = []
    for game in options.games:
        print(f"playing {game} ...", flush=True)
        rows.append(measure(game, options.frames))
    print_table(rows, options.frames * len(rows))
    if options.fill:
        fill_a_million()


if __name__ == "__main__":
    main()
