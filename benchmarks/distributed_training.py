"""Training by actors beside one process, in one run: equal updates a step, start-up excluded.

    python -m benchmarks.distributed_training --grid              # when actors pay off: cost of a step, of an update
    python -m benchmarks.distributed_training --costs             # costs of one unroll, draw and update, for scale.md
    python -m benchmarks.distributed_training --returns 30 20000  # final returns, SEEDS and STEPS

`python -m benchmarks.distributed` has the table of targets. Waits stand for work that another core or a GPU does, so
that two cores suffice to see what overlaps.
"""

import os
import runpy
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
from scipy import stats

from benchmarks import harness
from replaylab.distributed import Actors, Shards
from replaylab.distributed import train as train_by_actors
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay import RemoteReplay
from replaylab.learners import DQN, Hook, TrainingConfig, train
from replaylab.replay import Linear, Prioritized, ReplayBuffer

SAMPLER = Prioritized(beta=Linear(0.4, 1.0))
MARGIN = 50  # of the 500 that an episode of CartPole can return
EXAMPLE = Path(__file__).parents[1] / "examples" / "data_parallel_dqn.py"


class Waiting(gym.Wrapper):
    """CartPole whose step waits."""

    def __init__(self, seconds=0.005, **options):
        super().__init__(gym.make("CartPole-v1", **options))
        self.seconds = seconds

    def step(self, action):
        time.sleep(self.seconds)
        return self.env.step(action)


gym.register("replaylab-bench/Waiting-v0", Waiting)


@dataclass
class Pace(Hook):
    """Measures the steps a second between the first update after `start` of the run and the last update.

    Attributes:
        pause: Seconds by which each update is longer.
        start: Share of the updates that are not timed.
        total: Updates of the run.
    """

    total: int
    pause: float = 0.0
    start: float = 0.4
    updates: int = 0
    rate: float = 0.0
    began: tuple = (0, 0.0)

    __hash__ = object.__hash__

    def on_update(self, run, update, batch):  # noqa: ARG002
        """Count one update."""
        if self.pause:
            time.sleep(self.pause)
        self.updates += 1
        now = run.clock.steps, time.perf_counter()
        if self.updates == max(1, int(self.start * self.total)):
            self.began = now
        elif self.updates == self.total:
            self.rate = (now[0] - self.began[0]) / (now[1] - self.began[1])


def pace(config, actors=None, pause=0.0):
    """Return steps a second of one process, or of these actors, and the updates."""
    learner = config.learner
    due = range(learner.learning_starts, config.total_steps + 1)
    hook = Pace(sum(step % learner.train_period == 0 for step in due), pause)
    if actors is None:
        train(config, [0], [hook])
    else:
        train_by_actors(config, 0, actors=actors, shards=Shards(1), hooks=[hook])
    return hook.rate, hook.updates


def cartpole(steps, env="CartPole-v1", **learner):
    """A configuration without evaluations."""
    waits = {"env_options": {"seconds": learner.pop("seconds")}} if "seconds" in learner else {}
    return TrainingConfig(env, DQN(**learner), SAMPLER, total_steps=steps, eval_every=None, **waits)


def waiting(steps, seconds, **learner):
    """A configuration whose environment's step waits."""
    name = "benchmarks.distributed_training:replaylab-bench/Waiting-v0"
    return cartpole(steps, name, seconds=seconds, learning_starts=64, **learner)


def compare(single, many, actors, rounds, pause=0.0):
    """Return medians: steps a second of one process, of actors, and their ratio within a round; and updates a step."""
    rows = []
    for _ in range(rounds):
        alone, updates = pace(single, None, pause)
        together, all_updates = pace(many, actors, pause)
        per_step = (all_updates / many.total_steps) / (updates / single.total_steps)
        rows.append((alone, together, together / alone, per_step))
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def learners_pace(count, updates, wait, bare=False):
    """Return the updates a second of data-parallel learners, all together; `bare`: all from one batch each."""
    import ray

    names = runpy.run_path(str(EXAMPLE), run_name="data_parallel_dqn")

    class Paced(names["Learner"]):
        def fill(self, steps):
            for _ in range(steps):
                self.act(1.0)
            self.writer.flush()

        def pace(self, updates, wait):
            self.update()
            if bare:
                self.reader = SimpleNamespace(sample=lambda _, batch=self.batch: batch, update_priorities=lambda *_: 0)
            began = time.perf_counter()
            for _ in range(updates):
                self.update()
                time.sleep(wait)
            return updates / (time.perf_counter() - began)

    with TemporaryDirectory() as folder, names["open_replay"](Path(folder), count) as replay:
        learners = names["start"](replay, Path(folder), count, Paced)
        ray.get([learner.fill.remote(50) for learner in learners])
        return sum(ray.get([learner.pace.remote(updates, wait) for learner in learners]))


def grid(seconds, rounds):
    """Print the speed of 4 actors over that of one process, by the costs of a step and of an update."""
    updates = (0.0, 0.002, 0.01)
    print(
        "| an environment step takes | " + " | ".join(f"an update takes {1000 * u:g} ms more" for u in updates) + " |"
    )
    print("|---|" + "---|" * len(updates))
    for step in (0.0, 0.001, 0.005, 0.02):
        cells = []
        for update in updates:
            alone = 1.0 / (step + update + 0.0005)  # steps a second, about
            most = min(4 * alone * (step + update) / max(step, 1e-9), 1.0 / (update + 0.0005))
            single, many = (waiting(64 + int(rate * seconds), step) for rate in (alone, max(most, alone) * 0.8))
            cells.append(f"{compare(single, many, Actors(4), rounds, update)[2]:.2f}")
        print(f"| {1000 * step:g} ms more than CartPole's | " + " | ".join(cells) + " |", flush=True)


def costs(count):
    """Print processor times of the calls that limit large trainings: CartPole's rows, batches of 64."""
    from replaylab.distributed.training.hub import Hub, Report
    from replaylab.distributed.training.launcher import Launcher

    like = ReplayBuffer.for_env(gym.make("CartPole-v1"), 1)
    for shards in (1, 8):
        with RemoteReplay(100_000, like.fields, num_envs=8, shards=shards, sampler=SAMPLER) as replay:
            writer = replay.writer()
            rows = {name: np.zeros((16, 8, *field.shape), field.dtype) for name, field in like.fields.items()}
            pids = [os.getpid(), *(pid_of(f"{replay.run}/{number}") for number in range(shards))]

            for name, call in (("an unroll of 16 · 8 steps", store), ("a batch of 64 and its feedback", learn)):
                call(replay, writer, rows)
                before = [*map(processor_time, pids)]
                for _ in range(count):
                    call(replay, writer, rows)
                used = [1000 * (processor_time(pid) - then) / count for pid, then in zip(pids, before, strict=True)]
                print(f"{shards} shards, {name}: caller {used[0]:.2f} ms, all shards {sum(used[1:]):.2f} ms")
    hub = Launcher("costs", 0.0, b"").start("training", lambda _: Hub(1, 8))
    hub.call("publish", 0, {"w": np.zeros((1, 800), np.float32)}, 0.0, 10**9, False, {}).result()
    pid, before = pid_of("costs/training"), processor_time(pid_of("costs/training"))
    for _ in range(count):
        hub.call("exchange", 0, 0, Report(128, 0, [1.0] * 4, [2.0] * 4), 0, 16).result()
    print(f"the hub, an exchange: {1000 * (processor_time(pid) - before) / count:.2f} ms")
    hub.kill()


def store(replay, writer, rows):  # noqa: ARG001
    """Store an unroll as actors do."""
    writer.extend(**rows)
    writer.flush()


def learn(replay, writer, rows):  # noqa: ARG001
    """Draw a batch and send its feedback."""
    batch = replay.sample(64, progress=0.0)
    replay.update_priorities(batch.id, batch.reward)


def pid_of(name):
    """The process of a named actor."""
    import ray

    from replaylab.distributed.replay.calls import NAMESPACE

    return ray._private.state.actors(ray.get_actor(name, NAMESPACE)._actor_id.hex())["Pid"]


def processor_time(pid):
    """Seconds that a process has run, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def returns(seeds, steps):
    """Print final returns, means of the last four evaluations, of actors and of one process, and whether they differ.

    One process trains four times as many seeds, since they are cheap. Both are equivalent if the 90 % interval of the
    difference (Welch's t) is within 10 % of CartPole's range of returns.
    """
    learner = DQN(hidden=(64, 64), learning_rate=2e-3, loss="squared", target_period=20, train_period=4)
    config = replace(cartpole(steps), learner=learner, eval_every=steps // 10)
    began, alone = time.perf_counter(), train(config, range(4 * seeds))
    levels = {"one process": [level(alone, seed) for seed in range(4 * seeds)], "4 actors": []}
    for seed in range(seeds):
        levels["4 actors"].append(level(train_by_actors(config, seed, actors=Actors(4)), seed))
        passed, returned = time.perf_counter() - began, [values[seed] for values in levels.values()]
        print(f"seed {seed}: one process {returned[0]:.0f}, actors {returned[1]:.0f}; {passed:.0f} s", flush=True)
    for name, values in levels.items():
        print(f"{name}: mean {np.mean(values):.0f}, standard error {np.std(values, ddof=1) / len(values) ** 0.5:.0f}")
    interval = stats.ttest_ind(levels["4 actors"], levels["one process"], equal_var=False).confidence_interval(0.9)
    decision = "equivalent" if max(abs(interval.low), abs(interval.high)) <= MARGIN else "not shown to be equivalent"
    print(f"difference {interval.low:.0f} to {interval.high:.0f}: {decision} within ±{MARGIN}")


def level(metrics, seed):
    """The mean of the last four evaluations."""
    return float(metrics.of("eval/mean_reward", seed)[1][-4:].mean())


def main():
    """Print what the options ask for."""
    parser = harness.parser(__doc__, rounds=3)
    parser.add_argument("--grid", type=float, nargs="?", default=6.0, metavar="SECONDS", help="of each run")
    parser.add_argument("--costs", type=int, nargs="?", const=2_000, metavar="CALLS", help="of each kind")
    parser.add_argument("--returns", type=int, nargs=2, metavar=("SEEDS", "STEPS"))
    arguments = parser.parse_args()
    RaySession(object_store_bytes=200 * 2**20).open()
    if arguments.returns:
        returns(*arguments.returns)
    elif arguments.costs:
        costs(arguments.costs)
    else:
        grid(arguments.grid, arguments.rounds)


if __name__ == "__main__":
    main()
