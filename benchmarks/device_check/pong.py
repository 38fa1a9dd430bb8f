"""Part "pong": the laboratory's DQN learns Pong from pixels on the device, for some minutes."""

import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from benchmarks.device_check.figures import Figures

ENVIRONMENT = "ALE/Pong-v5"
OPTIONS = {"backend": "ale", "repeat_action_probability": 0.0}
NEEDED = ("gymnasium", "ale_py", "cv2")


@dataclass(frozen=True)
class Game:
    """Settings of learning Pong; the others are as in ``studies/pong-gpu.toml``.

    Attributes:
        strategy: "uniform" or "prioritized".
        minutes: How long.
        steps: The budget by which schedules count.
        batch_size: Rows of an update.
        learning_starts: Steps before the first update.
        envs: Games that are stepped together.
        capacity: Stored steps.
        games: Greedy games at the end.
        longest: Steps after which a greedy game is cut; None: it is played to the end.
    """

    strategy: str
    minutes: float
    steps: int = 3_000_000
    batch_size: int = 256
    learning_starts: int = 20_000
    envs: int = 64
    capacity: int = 500_000
    games: int = 10
    longest: int | None = None


def run(figures: Figures, game: Game) -> None:
    """Learn, and play greedily."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        figures.skip(ENVIRONMENT, f"not installed: {', '.join(missing)}; put wheels of them into WHEELS")
        return
    figures.attempt(f"{ENVIRONMENT}, {game.strategy}", lambda: _learn(figures, game))


def _learn(figures: Figures, game: Game) -> None:
    from replaylab.learners import DQN, Adam, Hook, TrainingConfig, TrainingRun, train
    from replaylab.learners.evaluation.evaluators import GreedyEvaluation
    from replaylab.replay import FrameStack, Linear, NStep, Prioritized, Uniform

    class OverError(Exception):
        """The minutes are over."""

    class Deadline(Hook):
        """Stops training, and keeps the agents and what was done."""

        def on_begin(self, run: TrainingRun) -> None:
            del run
            self.began = time.perf_counter()

        def after_turn(self, run: TrainingRun) -> None:
            if time.perf_counter() - self.began > 60 * game.minutes:
                if figures.on_gpu:
                    torch.cuda.synchronize()
                self.seconds = time.perf_counter() - self.began
                self.agents, self.steps = run.agents, run.clock.steps
                raise OverError

    samplers = {"uniform": Uniform(), "prioritized": Prioritized(0.5, Linear(0.4, 1.0))}
    learner = DQN(
        device=str(figures.device),
        replay="device",
        envs=game.envs,
        precision="tf32" if figures.on_gpu else "float32",
        dueling=True,
        learning_rate=2.5e-4,
        optimizer=Adam(epsilon=1.5e-4),
        batch_size=game.batch_size,
        capacity=game.capacity,
        learning_starts=game.learning_starts,
        train_period=32,
        target_period=500,
        max_grad_norm=10.0,
        epsilon=Linear(1.0, 0.01, until=0.1),
    )
    config = TrainingConfig(
        ENVIRONMENT,
        learner,
        samplers[game.strategy],
        total_steps=game.steps,
        transforms=[NStep(3, learner.gamma), FrameStack(4, padding="zero", stacked_input=True)],
        env_options=OPTIONS,
        eval_every=game.steps,
        eval_episodes=game.games,
        log_every=game.steps // 100,
    )
    deadline = Deadline()
    with suppress(OverError):
        train(config, [0], [deadline])
    speed = deadline.steps / deadline.seconds
    what = f"{ENVIRONMENT}, {game.strategy}, {game.minutes:g} minutes"
    note = f"{deadline.steps:,} steps"
    figures.add(f"{what}: environment steps a second", speed, "", "≥ 8,000", speed >= 8_000, note=note)
    rows = deadline.agents.updates * game.batch_size / deadline.seconds
    figures.add(f"{what}: learned rows a second", rows, "", "≥ 60,000", rows >= 60_000)
    options = OPTIONS if game.longest is None else {**OPTIONS, "max_episode_steps": game.longest}
    evaluation = GreedyEvaluation(ENVIRONMENT, game.games, env_options=options)
    returns, _ = evaluation(deadline.agents, [0], 0)
    evaluation.close()
    mean = float(returns[0])
    figures.add(f"{what}: mean of {game.games} greedy games", mean, "", "≥ 18", mean >= 18)
