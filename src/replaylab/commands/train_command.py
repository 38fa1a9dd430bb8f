"""``replaylab train``."""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from replaylab.commands.places import check_no_run, check_place, check_replaceable
from replaylab.errors import ReplayError, SpecError

if TYPE_CHECKING:
    from replaylab.commands.train import Trainer
    from replaylab.study.plan.populations import Population

with suppress(ModuleNotFoundError):  # `main` says that the lab extra is missing
    from tyro.conf import arg

STEPS = 50_000
"""Of each seed, where the command line says nothing. Below, None is what was not given: --resume tells it from a
default that was."""


@dataclass(frozen=True)
class TrainCommand:
    """Train one learner on one environment with one replay strategy, over many seeds at once.

    Example: replaylab train --env CartPole-v1 --strategy prioritized --seeds 10 --steps 50000

    Example: replaylab train --strategy prioritized --strategy-options alpha=0.7 beta=0.5 --out run.parquet

    Example: replaylab train --env Taxi-v4 --learner q_learning --learner-options batch_size=32 --episodes 500

    Example: replaylab train --env ALE/Pong-v5 --seeds 1 --transforms frame_stack:stacked_input=true --video pong.mp4

    Example: replaylab train --save runs/mine, and after a break: replaylab train --resume runs/mine

    Example: replaylab train --strategy prioritized --actors 4 --shards 2 --save runs/mine
    """

    env: Annotated[str | None, arg(help_behavior_hint="(default: CartPole-v1)")] = None
    """Gymnasium environment id."""

    strategy: Annotated[str | None, arg(help_behavior_hint="(default: uniform)")] = None
    """Replay strategy: none, uniform, prioritized, rank_based, combined, recency, any other a study takes, or your own
    as module:Class."""

    strategy_options: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...")] = ()
    """Options of the strategy, values as in TOML: alpha=0.7."""

    learner: Annotated[str | None, arg(help_behavior_hint="(default: dqn)")] = None
    """Learner: dqn, dqn_as_published, q_learning, sarsa, expected_sarsa, sb3; or your own as module:Class."""

    learner_options: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...")] = ()
    """Settings of the learner, values as in TOML: gamma=0.9 hidden=[64,64]."""

    transforms: Annotated[tuple[str, ...], arg(metavar="TYPE[:KEY=VALUE,...] ...")] = ()
    """What a drawn step becomes: n_step:steps=3, hindsight:ratio=4, frame_stack:stacked_input=true."""

    env_options: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...")] = ()
    """Options of the environment, values as in TOML: n=10."""

    seeds: int | None = None
    """How many seeds; all are trained together. None: 10, and with --actors 1."""

    first_seed: Annotated[int | None, arg(help_behavior_hint="(default: 0)")] = None
    """Number of the first seed."""

    steps: int | None = None
    """Environment steps of each seed. None: 50,000, or as many as --episodes take."""

    episodes: int | None = None
    """Episodes of each seed, as the budget in place of steps; eval-every and save-every count episodes then."""

    eval_every: int | None = None
    """Environment steps between greedy evaluations; None: a twentieth of the budget."""

    eval_episodes: Annotated[int | None, arg(help_behavior_hint="(default: 10)")] = None
    """Episodes of one evaluation."""

    held_out: Annotated[int | None, arg(help_behavior_hint="(default: 0)")] = None
    """States, seen by a random policy beforehand, whose mean of max Q each evaluation records."""

    out: Path | None = None
    """Write every metric to this Parquet file, in the columns of a study's results."""

    save: Path | None = None
    """Folder for checkpoints, and at the end for what each agent has learned."""

    save_every: int | None = None
    """Environment steps between checkpoints; None: a tenth of the budget, or none at all where the environment cannot
    continue from one (EnvPool): then only what each agent has learned is saved."""

    resume: Path | None = None
    """Continue from the checkpoint in this folder, and save there, as often as before or every --save-every; everything
    else is as it was when the run began."""

    actors: int | None = None
    """Train one seed on what so many actors store, processes of a Ray cluster; --steps counts those of all. None: in
    this process alone."""

    envs_per_actor: int | None = None
    """Of --actors: environments that each steps; None: 1."""

    shards: int | None = None
    """Of --actors: processes that the replay lies in; None: 2."""

    samples_per_insert: float | None = None
    """Of --actors: rows learned from for each step stored; None: as many as the learner's settings say."""

    address: str | None = None
    """Of --actors: HOST:PORT of the cluster, or auto for the one on this machine; None: a Ray of its own here."""

    tensorboard: Path | None = None
    """Write event files for TensorBoard to this folder."""

    video: Path | None = None
    """Write a greedy episode of the first seed, once it is trained, as a video: mp4, or GIF without PyAV."""

    def __call__(self) -> int:
        """Train and return the exit code."""
        from rich.console import Console

        from replaylab.commands.train import described_population, saved_population, train_and_report
        from replaylab.study.execution.worker.preflight import check_population

        self._check_saving()
        trainer = self._trainer()
        folder = self.resume or self.save
        population = saved_population(self.resume) if self.resume else self._population(described_population)
        self._check_resumable(trainer)
        self._check_apart(folder)
        for option in ("out", "video", "tensorboard", "save"):
            check_place("train", option, getattr(self, option), is_file=option in ("out", "video"))
        check_no_run("train", self.save)
        check_replaceable("train", "out", self.out, b"PAR1", "Parquet")
        check_population(population)
        try:
            train_and_report(
                population,
                Console(),
                self.out,
                save=folder,
                save_every=self._saves_every(population, trainer) if folder else None,
                resume=self.resume is not None,
                tensorboard=self.tensorboard,
                video=self.video,
                trainer=trainer,
            )
        except ReplayError:
            raise
        except (Exception, SystemExit):  # the environment's or the user's own code, so with its traceback
            print(f"FAILED {population.label}\n{traceback.format_exc().rstrip()}", file=sys.stderr)
            return 1
        return 0

    def _check_saving(self) -> None:
        """Raise SpecError for options of saving that would change nothing."""
        if self.save_every is not None and not (self.save or self.resume):
            raise SpecError("train: --save-every needs a folder; give --save, or leave it out")
        if self.save_every is not None and self.save_every < 1:
            raise SpecError(f"train: --save-every must be at least 1, but got {self.save_every}")
        free = ("resume", "save_every", "out", "tensorboard", "video", "address")
        given = [one.name for one in fields(self) if one.name not in free and getattr(self, one.name) != one.default]
        if self.resume and given:
            option = f"--{given[0].replace('_', '-')}"
            raise SpecError(f"train: {option} must be left out with --resume: the run goes on as it began")

    def _check_apart(self, folder: Path | None) -> None:
        """Raise SpecError where one thing that is written would replace another."""
        named = {name: getattr(self, name) for name in ("out", "video", "tensorboard")} | {"save": folder}
        places = {name: path.resolve() for name, path in named.items() if path is not None}
        for (one, here), (other, there) in itertools.combinations(places.items(), 2):
            if here == there:
                raise SpecError(f"train: --{one} and --{other} must be two places, but both are {here}")
        for name in ("out", "video"):
            path = places.get(name)
            if path is not None and path.parent == places.get("save") and path.suffix in (".json", ".npz"):
                raise SpecError(f"train: --{name} must not be named as what is saved, but is {path}; give another name")

    def _check_resumable(self, trainer: Trainer) -> None:
        """Raise SpecError where a run was begun in this process but has no checkpoint yet."""
        from replaylab.commands.actors import WithActors

        folder = self.resume
        begun = folder and not isinstance(trainer, WithActors) and (folder / "population.json").is_file()
        if folder and begun and not (folder / "run.json").is_file():
            raise SpecError(
                f"train: {folder} holds no checkpoint to go on from: there is no run.json in it; train anew with "
                "--save, and --save-every below the budget"
            )

    def _saves_every(self, population: Population, trainer: Trainer) -> int | None:
        from replaylab.commands.actors import WithActors
        from replaylab.commands.train import default_save_period, saved_period

        if self.save_every is not None:
            return self.save_every
        if self.resume and (period := saved_period(self.resume)) is not None:
            return period
        return max(1, population.steps // 10) if isinstance(trainer, WithActors) else default_save_period(population)

    def _trainer(self) -> Trainer:
        """Return what trains: this process alone, or actors."""
        from replaylab.commands.actors import WithActors, check_options
        from replaylab.study.execution.worker.training import train_population

        if self.resume:
            return WithActors.saved(self.resume, self.address) or train_population
        names = ("actors", "envs_per_actor", "shards", "samples_per_insert", "address")
        check_options({name: getattr(self, name) for name in names}, self.seeds)
        if self.actors is None:
            return train_population
        envs, shards = self.envs_per_actor, self.shards
        envs, shards = 1 if envs is None else envs, 2 if shards is None else shards
        return WithActors(self.actors, envs, shards, self.samples_per_insert, self.address)

    def _population(self, described: Callable[..., Population]) -> Population:
        if self.steps is not None and self.episodes is not None:
            raise SpecError(
                f"train: the budget must be --steps or --episodes, but got both, {self.steps} and {self.episodes}; "
                f"leave one out"
            )
        steps = STEPS if self.steps is None else self.steps
        budget = steps if self.episodes is None else self.episodes
        seeds = (10 if self.actors is None else 1) if self.seeds is None else self.seeds
        first = 0 if self.first_seed is None else self.first_seed
        return described(
            environment="CartPole-v1" if self.env is None else self.env,
            strategy="uniform" if self.strategy is None else self.strategy,
            strategy_options=self.strategy_options,
            learner="dqn" if self.learner is None else self.learner,
            learner_options=self.learner_options,
            seeds=range(first, first + seeds),
            steps=steps,
            episodes=self.episodes,
            transforms=self.transforms,
            env_options=self.env_options,
            eval_every=max(1, budget // 20) if self.eval_every is None else self.eval_every,
            eval_episodes=10 if self.eval_episodes is None else self.eval_episodes,
            held_out=0 if self.held_out is None else self.held_out,
        )
