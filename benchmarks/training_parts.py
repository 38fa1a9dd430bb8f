"""Where the time of a training step goes, with the core's networks and with a network of PyTorch's own.

    python -m benchmarks.training_parts --seeds 1

Trains on CartPole with a batch of 64, one update of one hidden layer of 128, and priorities, as `benchmarks.training`
does. Each part of a step is a few functions, which are replaced by timed ones; the time between them is what they leave
of the step. Medians over the steps are printed, so those of the parts do not add up to a step's exactly.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import nn

from benchmarks import harness
from replaylab.envs.batched import BatchedEnv
from replaylab.learners import DQN, TrainingConfig, train
from replaylab.learners.dqn.modules import ModuleAgents
from replaylab.learners.dqn.perceptrons import PerceptronAgents
from replaylab.learners.training import loop
from replaylab.learners.training.metrics_recorder import MetricsRecorder
from replaylab.replay import Prioritized, ReplayBuffer

STEP = "a step"
PARTS: dict[str, list[tuple[Any, str]]] = {
    "environment": [(BatchedEnv, "step")],
    "acting": [(PerceptronAgents, "act"), (ModuleAgents, "act")],
    "storing": [(ReplayBuffer, "add")],
    "drawing": [(ReplayBuffer, "sample")],
    "update of the network": [(PerceptronAgents, "update"), (ModuleAgents, "update")],
    "new priorities": [(ReplayBuffer, "update_priorities")],
    "metrics": [(MetricsRecorder, "on_step"), (MetricsRecorder, "on_update"), (MetricsRecorder, "after_learning")],
    STEP: [(loop, "turn")],
}
REST = "between them"


def network(space: Any, actions: int) -> nn.Module:
    """Return the same network as the core's, as a custom module."""
    return nn.Sequential(nn.Linear(space.shape[0], 128), nn.ReLU(), nn.Linear(128, actions))


@contextmanager
def timed_steps() -> Iterator[list[dict[str, float]]]:
    """Context manager: the times in µs of the parts of each step."""
    steps: list[dict[str, float]] = []
    step = dict.fromkeys(PARTS, 0.0)

    def clocked(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            result = function(*args, **kwargs)
            step[part] += (time.perf_counter_ns() - start) / 1_000
            if part == STEP:
                total = step.pop(STEP)
                steps.append({**step, REST: total - sum(step.values()), STEP: total})
                step.update(dict.fromkeys(PARTS, 0.0))
            return result

        return call

    with ExitStack() as patches:
        for part, functions in PARTS.items():
            for owner, name in functions:
                patches.enter_context(mock.patch.object(owner, name, clocked(getattr(owner, name), part)))
        yield steps


def parts_of_a_step(learner: DQN, seeds: int, steps: int) -> dict[str, float]:
    """Return the median time in µs of each part of a step that learns, and of the step itself."""
    configuration = TrainingConfig("CartPole-v1", learner, Prioritized(), steps, eval_every=None)
    with timed_steps() as times:
        train(configuration, range(seeds))
    return {part: statistics.median(step[part] for step in times[learner.learning_starts :]) for part in times[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.parser(__doc__, 5, writes_json=True)
    parser.add_argument("--seeds", type=int, default=1, help="seeds trained together")
    parser.add_argument("--steps", type=int, default=3_000, help="steps of each seed in a round")
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # short runs log no metrics
    core = replace(DQN(), hidden=(128,), batch_size=64, learning_starts=64, train_period=1)
    learners = {"core": core, "PyTorch": replace(core, module=network)}
    contestants = {
        name: lambda learner=learner: parts_of_a_step(learner, options.seeds, options.steps)
        for name, learner in learners.items()
    }
    rounds = harness.take_turns(contestants, options.rounds)
    figures = {
        name: {part: statistics.median(figures[part] for figures in results) for part in results[0]}
        for name, results in rounds.items()
    }
    print(f"{'µs':<24}" + "".join(f"{name:>10}" for name in figures))
    for part in figures["core"]:
        print(f"{part:<24}" + "".join(f"{by_part[part]:>10.1f}" for by_part in figures.values()))
    harness.write_json(options.json, {"seeds": options.seeds, "microseconds": figures})


if __name__ == "__main__":
    main()
