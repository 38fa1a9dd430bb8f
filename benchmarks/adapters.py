"""The adapters beside the classes that they replace: CleanRL's, Stable-Baselines3's, TorchRL's and Tianshou's.

    python -m benchmarks.adapters --cleanrl FOLDER

FOLDER is a clone of CleanRL, whose ``cleanrl_utils/buffers.py`` is timed. Both sides get the same calls, in interleaved
rounds, on one thread. Printed are medians in microseconds of wall time, and the ratio of the two medians in this run
with its 95 % interval (bootstrap over whole rounds). Steps are CartPole's. An original that cannot be made is named,
and its rows are left out.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from benchmarks import harness
from benchmarks.report import median_ratio, ratio_interval
from benchmarks.timing import Times, run_rounds, time_block
from replaylab.replay import Prioritized

OURS, THEIRS = "replaylab", "original"
OBS, ACTION = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2)
CAPACITY, BATCH = 10_000, 64
CALLS = 100
"""Calls in one timed block."""

Call = Callable[[], Any]
Pairs = dict[str, tuple[Call, Call]]
"""By operation: a call of ours and the same of the original."""


def step(num_envs: int, dtype: Any = np.float32) -> tuple[Any, ...]:
    """Return obs, next_obs, action, reward and done of one step, as vector environments return them."""
    rng = np.random.default_rng(0)
    obs, next_obs = rng.standard_normal((2, num_envs, 4)).astype(dtype)
    return obs, next_obs, np.zeros(num_envs, np.int64), np.ones(num_envs), np.zeros(num_envs, np.bool_)


def filled(add: Call, calls: int = 200) -> None:
    """Call `add` before anything is timed."""
    for _ in range(calls):
        add()


def cleanrl(folder: Path) -> Pairs:
    """Return the calls of CleanRL's loop: `infos` is a dict, as Gymnasium's vector environments return it."""
    from replaylab.integrations.cleanrl import ReplayBuffer as Ours

    sys.path.insert(0, str(folder))
    try:
        original = importlib.import_module("cleanrl_utils.buffers").ReplayBuffer
    finally:
        sys.path.remove(str(folder))
    pairs: Pairs = {}
    for dtype in (np.float64, np.float32):  # MuJoCo's observations, which the scripts store as float32, and CartPole's
        for num_envs in (1, 4):
            arguments = (CAPACITY, OBS, ACTION, "cpu", num_envs)
            buffers = [kind(*arguments, handle_timeout_termination=False) for kind in (Ours, original)]
            adds = [partial(buffer.add, *step(num_envs, dtype), {}) for buffer in buffers]
            pairs[f"CleanRL add of {dtype.__name__}, {num_envs} environments"] = adds[0], adds[1]
    for add in adds:
        filled(add)
    pairs[f"CleanRL sample({BATCH})"] = partial(buffers[0].sample, BATCH), partial(buffers[1].sample, BATCH)
    return pairs


def stable_baselines3() -> Pairs:
    """Return the calls of Stable-Baselines3's loop: `infos` is a list of dicts."""
    from stable_baselines3.common.buffers import ReplayBuffer as Original

    from replaylab.integrations.sb3 import ReplayLabBuffer

    pairs: Pairs = {}
    for num_envs in (1, 4):
        lab, library = (kind(CAPACITY, OBS, ACTION, "cpu", num_envs) for kind in (ReplayLabBuffer, Original))
        infos: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        adds = [partial(buffer.add, *step(num_envs), infos) for buffer in (lab, library)]
        pairs[f"Stable-Baselines3 add, {num_envs} environments"] = adds[0], adds[1]
    for add in adds:
        filled(add)
    lab.progress = 0.0
    pairs[f"Stable-Baselines3 sample({BATCH})"] = partial(lab.sample, BATCH), partial(library.sample, BATCH)
    return pairs


def torchrl() -> Pairs:
    """Return the calls of TorchRL's training loops, prioritized on both sides."""
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer

    from replaylab.integrations.torchrl import ReplayLabSampler

    steps = 50
    obs, flag = torch.zeros(steps, 4), torch.zeros(steps, 1, dtype=torch.bool)
    after = {"observation": obs, "reward": torch.ones(steps, 1), "done": flag, "terminated": flag, "truncated": flag}
    data = TensorDict({"observation": obs, "action": torch.zeros(steps, 2), "next": after}, [steps])
    buffers = []
    for sampler in (ReplayLabSampler(CAPACITY, Prioritized(0.6, 0.4)), PrioritizedSampler(CAPACITY, 0.6, 0.4)):
        storage = LazyTensorStorage(CAPACITY)
        buffers.append(TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=BATCH))
        filled(partial(buffers[-1].extend, data))
    errors = torch.rand(BATCH)

    def learn(buffer: Any) -> None:
        batch = buffer.sample()
        batch["td_error"] = errors
        buffer.update_tensordict_priority(batch)

    lab, library = buffers
    return {
        f"TorchRL extend({steps})": (partial(lab.extend, data), partial(library.extend, data)),
        f"TorchRL sample({BATCH})": (lab.sample, library.sample),
        "TorchRL sample and update_tensordict_priority": (partial(learn, lab), partial(learn, library)),
    }


def tianshou() -> Pairs:
    """Return the calls of Tianshou's collectors and algorithms, prioritized on both sides, with 4 environments."""
    from tianshou.data import Batch, PrioritizedVectorReplayBuffer

    from replaylab.integrations.tianshou import ReplayLabVectorBuffer

    num_envs = 4
    obs, next_obs, action, reward, flags = step(num_envs)
    rows = Batch(obs=obs, act=action, rew=reward, terminated=flags, truncated=flags, obs_next=next_obs)
    lab = ReplayLabVectorBuffer(CAPACITY, num_envs, Prioritized(0.6, 0.4), seed=0)
    library = PrioritizedVectorReplayBuffer(CAPACITY, num_envs, alpha=0.6, beta=0.4)
    environments, errors = np.arange(num_envs), np.random.default_rng(0).random(BATCH)
    adds = [partial(buffer.add, rows, environments) for buffer in (lab, library)]
    for add in adds:
        filled(add)

    def learn(buffer: Any) -> None:
        _, indices = buffer.sample(BATCH)
        buffer.update_weight(indices, errors)

    return {
        f"Tianshou add, {num_envs} environments": (adds[0], adds[1]),
        f"Tianshou sample({BATCH})": (partial(lab.sample, BATCH), partial(library.sample, BATCH)),
        "Tianshou sample and update_weight": (partial(learn, lab), partial(learn, library)),
    }


def available(folder: Path | None) -> tuple[Pairs, dict[str, str]]:
    """Return every pair that can be made here, and the reasons for the others, by library."""
    libraries: dict[str, Callable[[], Pairs]] = {
        "Stable-Baselines3": stable_baselines3,
        "TorchRL": torchrl,
        "Tianshou": tianshou,
    }
    pairs, reasons = {}, {}
    if folder is None:
        reasons["CleanRL"] = "no --cleanrl FOLDER"
    else:
        libraries = {"CleanRL": partial(cleanrl, folder), **libraries}
    for name, make in libraries.items():
        try:
            pairs |= make()
        except (ImportError, RuntimeError) as error:  # TorchRL raises RuntimeError without its compiled trees
            reasons[name] = str(error)
    return pairs, reasons


def timed(pairs: Pairs, rounds: int, calls: int) -> Times:
    """Time every pair; return microseconds a call by operation and side, one value a round."""

    def turn(call: Call, seed: tuple[int, ...]) -> float:
        del seed
        return time_block(lambda inputs: [call() for _ in inputs], [None] * calls)

    rows = {name: {OURS: partial(turn, lab), THEIRS: partial(turn, library)} for name, (lab, library) in pairs.items()}
    return run_rounds(rows, rounds, 0, lambda _: None)


def figures_of(times: Times) -> dict[str, dict[str, Any]]:
    """Return each operation's medians, their ratio and its interval."""
    return {
        name: {
            **{side: float(np.median(row[side])) for side in (OURS, THEIRS)},
            "ratio": median_ratio(row, OURS, THEIRS),
            "interval": ratio_interval(row[OURS], row[THEIRS]),
        }
        for name, row in times.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__, 40, writes_json=True)
    parser.add_argument("--cleanrl", type=Path, metavar="FOLDER", help="a clone of github.com/vwxyzjn/cleanrl")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls in one timed block")
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the libraries, about their own parts
    pairs, reasons = available(options.cleanrl)
    figures = figures_of(timed(pairs, options.rounds, options.calls))
    print(f"{'median µs':44}{OURS:>10}{THEIRS:>10}{'ratio':>8}{'95 %':>16}")
    for name, row in figures.items():
        low, high = row["interval"]
        print(f"{name:44}{row[OURS]:10.1f}{row[THEIRS]:10.1f}{row['ratio']:8.2f}{f'{low:.2f} to {high:.2f}':>16}")
    for name, reason in reasons.items():
        print(f"{name}: not measured ({reason})")
    harness.write_json(options.json, {"figures": figures, "not measured": reasons})
    return 0


if __name__ == "__main__":
    sys.exit(main())
