"""Cost of the measures of replay: their share of training time.

    python -m benchmarks.measures --json measures.json

Trains chunks with measures on, in one process with one thread, and takes the processor's time inside and outside
of them in the same run, so that what else the machine does counts on both sides. Counting how often each step is drawn
is the one part that lies outside; its cost is in ``docs/guides/introspection.md``.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks import harness

CELLS = {
    "CartPole-v1, DQN 128": ("CartPole-v1", "dqn"),
    "MountainCar-v0, DQN 128": ("MountainCar-v0", "dqn"),
    "Acrobot-v1, DQN 128": ("Acrobot-v1", "dqn"),
    "CliffWalking-v1, table, 32 replayed": ("CliffWalking-v1", "table"),
}


def share(env_id: str, kind: str, *, seeds: int, steps: int, every: int) -> float:
    """Return the measures' processor time over the rest's, in one run."""
    from replaylab.learners import DQN, QLearning, TrainingConfig, train
    from replaylab.learners.evaluation.batch_measures import BatchMeasures
    from replaylab.replay import Prioritized, Uniform

    inside = 0.0

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal inside
            begin = time.process_time()
            result = method(*args)
            inside += time.process_time() - begin
            return result

        return call

    plain = BatchMeasures.after_learning
    BatchMeasures.after_learning = timed(plain)  # type: ignore[method-assign]
    begin = time.process_time()
    try:
        learner = DQN() if kind == "dqn" else QLearning(batch_size=32, capacity=2_000)
        sampler = Prioritized() if kind == "dqn" else Uniform()
        config = TrainingConfig(env_id, learner, sampler, steps, eval_every=None, log_every=500, measure_every=every)
        train(config, range(seeds))
    finally:
        BatchMeasures.after_learning = plain  # type: ignore[method-assign]
    return inside / (time.process_time() - begin - inside)


def main() -> None:
    parser = harness.parser(__doc__, 3, writes_json=True)
    parser.add_argument("--seeds", type=int, default=10, help="trained together")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--every", type=int, nargs="+", default=[1_000, 2_500, 5_000])
    options = parser.parse_args()

    figures: dict[str, dict[int, float]] = {}
    for name, (env_id, kind) in CELLS.items():
        figures[name] = {}
        for every in options.every:
            shares = [
                share(env_id, kind, seeds=options.seeds, steps=options.steps, every=every)
                for _ in range(options.rounds)
            ]
            figures[name][every] = statistics.median(shares)
        reported = ", ".join(
            f"every {every:,}: {100 * share_of_time:.1f} %" for every, share_of_time in figures[name].items()
        )
        print(f"{name:<38}{reported}", flush=True)
    about = {"seeds": options.seeds, "steps": options.steps, "rounds": options.rounds}
    harness.write_json(options.json, {"shares": figures, "run": about})


if __name__ == "__main__":
    main()
