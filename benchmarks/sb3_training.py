"""Training by Stable-Baselines3: with its own buffer, with ours, and with priorities, as ratios in one run.

    python -m benchmarks.sb3_training

The contestants of an algorithm train in turns, a few steps at a time in many rounds; a ratio is that of the processor's
times within one round, of which the median is printed, with its interval at 95 %. The bare loops are the least that a
prioritized DQN can cost in PyTorch over our uniform buffer: its `train` written out, with a weighted loss and the TD
errors; once these are left there, once they go back to the sampler. Memory is what the buffers' own arrays hold.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from gymnasium import spaces
from scipy.stats import binom
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import ReplayBuffer

from benchmarks import harness
from replaylab.integrations.sb3 import PrioritizedDQN, PrioritizedSAC, ReplayLabBuffer
from replaylab.replay import Prioritized

THEIRS, UNIFORM, PRIORITIZED = "the library's", "ours, uniform", "ours, prioritized"
BARE, BARE_FED = "bare loop", "bare loop, fed back"


class BareDQN(DQN):
    """DQN with one update written out: weights and TD errors, and nothing that is not needed for them."""

    takes_weights: ClassVar[bool] = True
    feeds_back: ClassVar[bool] = False
    replay_buffer: ReplayLabBuffer

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Do the library's updates, weighted."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses = []
        for _ in range(gradient_steps):
            progress = min(1.0 - self._current_progress_remaining, 1.0)
            batch = self.replay_buffer.replay.sample(batch_size, progress=progress)
            data = self.replay_buffer._samples(batch, None)
            weights = torch.from_numpy(batch.weight.reshape(-1, 1))
            with torch.no_grad():
                best = self.q_net_target(data.next_observations).max(dim=1)[0].reshape(-1, 1)
                target = data.rewards + (1 - data.dones) * self.gamma * best
            values = torch.gather(self.q_net(data.observations), dim=1, index=data.actions.long())
            loss = (weights * F.smooth_l1_loss(values, target, reduction="none")).mean()
            losses.append(loss.item())
            self.policy.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            errors = (values.detach() - target).abs().numpy().reshape(-1)
            if self.feeds_back:
                self.replay_buffer.replay.update_priorities(batch.id, errors)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))


class BareFedDQN(BareDQN):
    """The same, whose TD errors become priorities."""

    feeds_back: ClassVar[bool] = True


def contestants(
    library: Any, prioritized: Any, env: str, bare: dict[str, Any] | None = None, **options: Any
) -> dict[str, Callable[[], Any]]:
    """Return who trains, by name."""
    arguments = {"policy": "MlpPolicy", "env": env, "seed": 0, "device": "cpu"} | options
    with_our_buffer = {"replay_buffer_class": ReplayLabBuffer, "replay_buffer_kwargs": {"sampler": Prioritized()}}
    limits = {name: lambda kind=kind: kind(**arguments, **with_our_buffer) for name, kind in (bare or {}).items()}
    return {
        THEIRS: lambda: library(**arguments),
        UNIFORM: lambda: library(replay_buffer_class=ReplayLabBuffer, **arguments),
        PRIORITIZED: lambda: prioritized(**arguments),
        **limits,
    }


LIMITS = {BARE: BareDQN, BARE_FED: BareFedDQN}
ALGORITHMS = {
    "SAC": contestants(SAC, PrioritizedSAC, "Pendulum-v1"),
    "DQN": contestants(DQN, PrioritizedDQN, "CartPole-v1", LIMITS),
    "DQN, an update a step": contestants(DQN, PrioritizedDQN, "CartPole-v1", LIMITS, train_freq=1),
}


def seconds(model: Any, steps: int) -> float:
    """Return the processor's time of so many steps."""
    before = time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    return time.process_time() - before


def figure(above: list[float], below: list[float]) -> str:
    """Return the median of paired ratios, and its interval at 95 %, by ranks."""
    ratios = sorted(harness.ratios(above, below))
    low = max(int(binom(len(ratios), 0.5).ppf(0.025)) - 1, 0)
    return f"{median(ratios):.3f} ({ratios[low]:.3f} to {ratios[-1 - low]:.3f})"


def bytes_of_a_million() -> dict[str, float]:
    """Return the gigabytes of a million steps of Atari's stacks of four frames, from a full buffer of 2,000."""
    steps, rng = 2_000, np.random.default_rng(0)
    space, action = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)
    buffers = {
        "the library's": ReplayBuffer(steps, space, action),
        "the library's, optimize_memory_usage": ReplayBuffer(
            steps, space, action, optimize_memory_usage=True, handle_timeout_termination=False
        ),
        "ours, frame_stack=4": ReplayLabBuffer(steps, space, action, frame_stack=4, optimize_memory_usage=True),
    }
    for buffer in buffers.values():
        for step in range(steps):
            if step % 250 == 0:
                stack = np.zeros((1, 4, 84, 84), np.uint8)
                stack[0, -1] = rng.integers(256, size=(84, 84))
            after = np.roll(stack, -1, axis=1)
            after[0, -1] = rng.integers(256, size=(84, 84))
            done = np.array([step % 250 == 249])
            buffer.add(stack, after, np.zeros((1, 1)), np.zeros(1), done, [{}])
            stack = after
    kilobytes = {name: 1e-3 * _nbytes(buffer) / steps for name, buffer in buffers.items()}
    print("GB of a million steps:", ", ".join(f"{name} {value:.1f}" for name, value in kilobytes.items()))
    return kilobytes


def _nbytes(buffer: Any) -> int:
    if isinstance(buffer, ReplayLabBuffer):
        return buffer.replay.nbytes
    return sum(value.nbytes for value in vars(buffer).values() if isinstance(value, np.ndarray))


def main() -> None:
    parser = harness.parser(__doc__, 200)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    bytes_of_a_million()
    for algorithm in asked.algorithms:
        models = {name: make() for name, make in ALGORITHMS[algorithm].items()}
        for model in models.values():
            model.learn(1000)
        taken = harness.take_turns(
            {n: partial(seconds, model, asked.steps) for n, model in models.items()}, asked.rounds
        )
        print(algorithm)
        for name, times in taken.items():
            print(f"  {name:20}{1e3 * median(times) / asked.steps:8.3f} ms a step")
        print(f"  uniform, of the library's   {figure(taken[UNIFORM], taken[THEIRS])}")
        print(f"  prioritized, of uniform     {figure(taken[PRIORITIZED], taken[UNIFORM])}")
        for name in (limit for limit in LIMITS if limit in models):
            print(f"  {name + ', of uniform':32}{figure(taken[name], taken[UNIFORM])}")


if __name__ == "__main__":
    main()
