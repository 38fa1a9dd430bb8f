"""``replaylab train``."""

from __future__ import annotations

import itertools
import sys
import tomllib
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from replaylab.commands.places import check_place
from replaylab.errors import ReplayError, SpecError

if TYPE_CHECKING:
    from replaylab.commands.train import Trainer
    from replaylab.study.plan import Chunk
    from replaylab.study.spec.components import Catalogue


with suppress(ModuleNotFoundError):  # `main` says that the lab extra is missing
    from tyro.conf import arg

DEFAULTS: dict[str, Any] = {
    "env": "CartPole-v1",
    "strategy": "uniform",
    "learner": "dqn",
    "first_seed": 0,
    "steps": 50_000,
    "envs_per_actor": 8,
    "shards": 1,
}
"""Below, None marks an option that was not passed, since --resume must distinguish it from a passed default. Options
that are not listed here have the defaults of study files."""

_GAMES = 64
"""Copies of an Atari game that a learner on a device steps together."""


@dataclass(frozen=True)
class TrainCommand:
    """Train one learner on one environment with one replay strategy, over many seeds at once.

    Example: replaylab train --env CartPole-v1 --strategy prioritized --seeds 10 --steps 50000

    Example: replaylab train --strategy prioritized --strategy-options alpha=0.7 beta=0.5 --out run.parquet

    Example: replaylab train --env Taxi-v4 --learner q_learning --learner-options batch_size=32 --episodes 500

    Example: replaylab train --env ALE/Pong-v5 --seeds 1 --transforms frame_stack:stacked_input=true --video pong.mp4

    Example: replaylab train --env ALE/Pong-v5 --device cuda --steps 2000000 --transforms n_step:steps=3

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
    """Settings of the learner, values as in TOML: gamma=0.9 hidden=[64,64]; none is None: max_grad_norm=none."""

    transforms: Annotated[tuple[str, ...], arg(metavar="TYPE[:KEY=VALUE,...] ...")] = ()
    """Transforms of the drawn steps: n_step:steps=3, hindsight:ratio=4, frame_stack:stacked_input=true."""

    env_options: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE ...")] = ()
    """Options of the environment, values as in TOML: n=10."""

    device: str | None = None
    """Store, draw and learn on this device of PyTorch, such as cuda: one seed of a DQN with replay=device. Of an Atari
    game 64 copies are stepped by the emulator's threads, and each frame is stored once. None: on the CPU."""

    seeds: int | None = None
    """Number of seeds; all are trained together. None: 10, and with --actors or --device 1."""

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
    """Environment steps between checkpoints; None: a tenth of the budget. If the environment cannot continue from a
    checkpoint (EnvPool), None saves only what each agent has learned, at the end."""

    resume: Path | None = None
    """Continue from the checkpoint in this folder, and save there, as often as before or every --save-every; with
    actors, --shards may change. Everything else is as it was when the run began."""

    actors: int | None = None
    """Train one seed with this many actors, processes of a Ray cluster; --steps counts the steps of all. None: no
    actors; this process steps the environments."""

    envs_per_actor: int | None = None
    """Environments that each actor steps together; None: 8."""

    shards: int | None = None
    """Processes that store the replay of actors; None: 1, or with --resume as many as before."""

    address: str | None = None
    """With actors: HOST:PORT of the cluster, or auto for the one on this machine; None: start Ray here."""

    tensorboard: Path | None = None
    """Write event files for TensorBoard to this folder."""

    video: Path | None = None
    """Write a greedy episode of the first seed, once it is trained, as a video: mp4, or GIF without PyAV."""

    def __call__(self) -> int:
        """Train and return the exit code."""
        from rich.console import Console

        from replaylab.commands.saved_runs import saved_chunk
        from replaylab.commands.train import train_and_report
        from replaylab.study.execution.worker.preflight import check_chunk

        self._check_saving()
        trainer = self._trainer()
        folder = self.resume or self.save
        chunk = saved_chunk(self.resume) if self.resume else self.chunk()
        self._check_resumable(trainer)
        self._check_apart(folder)
        for option in ("out", "video", "tensorboard", "save"):
            check_place("train", option, getattr(self, option), is_file=option in ("out", "video"))
        _check_no_run(self.save)
        _check_replaceable(self.out)
        try:
            check_chunk(chunk)
            train_and_report(
                chunk,
                Console(),
                self.out,
                save=folder,
                save_every=self._saves_every(chunk, trainer) if folder else None,
                resume=self.resume is not None,
                tensorboard=self.tensorboard,
                video=self.video,
                trainer=trainer,
            )
        except ReplayError:
            raise
        except (Exception, SystemExit):  # the environment's or the user's own code, so with its traceback
            print(f"FAILED {chunk.label}\n{traceback.format_exc().rstrip()}", file=sys.stderr)
            return 1
        return 0

    def _check_saving(self) -> None:
        """Raise SpecError for options of saving that would change nothing."""
        if self.save_every is not None and not (self.save or self.resume):
            raise SpecError("train: --save-every needs a folder; give --save, or leave it out")
        if self.save_every is not None and self.save_every < 1:
            raise SpecError(f"train: --save-every must be at least 1, but got {self.save_every}")
        free = ("resume", "save_every", "out", "tensorboard", "video", "address", "shards")
        changed = [
            option.name
            for option in fields(self)
            if option.name not in free and getattr(self, option.name) != option.default
        ]
        if self.resume and changed:
            option = f"--{changed[0].replace('_', '-')}"
            raise SpecError(f"train: {option} must be left out with --resume: the run continues as it began")

    def _check_apart(self, folder: Path | None) -> None:
        """Raise SpecError where one thing that is written would replace another."""
        named = {name: getattr(self, name) for name in ("out", "video", "tensorboard")} | {"save": folder}
        places = {name: path.resolve() for name, path in named.items() if path is not None}
        for (first, first_path), (second, second_path) in itertools.combinations(places.items(), 2):
            if first_path == second_path:
                raise SpecError(f"train: --{first} and --{second} must be two places, but both are {first_path}")
        for name in ("out", "video"):
            path = places.get(name)
            if path is not None and path.parent == places.get("save") and path.suffix in (".json", ".npz"):
                raise SpecError(f"train: --{name} must not be named as what is saved, but is {path}; give another name")

    def _check_resumable(self, trainer: Trainer) -> None:
        """Raise SpecError where a run was begun in this process but has no checkpoint yet."""
        from replaylab.commands.actors import WithActors

        folder = self.resume
        begun = folder and not isinstance(trainer, WithActors) and (folder / "chunk.json").is_file()
        if folder and begun and not (folder / "run.json").is_file():
            raise SpecError(
                f"train: {folder} holds no checkpoint to continue from: there is no run.json in it; train again with "
                "--save, and --save-every below the budget"
            )

    def _saves_every(self, chunk: Chunk, trainer: Trainer) -> int | None:
        from replaylab.commands.actors import WithActors
        from replaylab.commands.saved_runs import default_save_period, saved_period

        if self.save_every is not None:
            return self.save_every
        if self.resume and (period := saved_period(self.resume)) is not None:
            return period
        return max(1, chunk.steps // 10) if isinstance(trainer, WithActors) else default_save_period(chunk)

    def _trainer(self) -> Trainer:
        """Return what trains: this process alone, or actors."""
        from replaylab.commands.actors import WithActors, check_options
        from replaylab.study.execution.worker.training import train_chunk

        if self.resume:
            return WithActors.saved(self.resume, self.address, self.shards) or train_chunk
        names = ("actors", "envs_per_actor", "shards", "address")
        check_options({name: getattr(self, name) for name in names}, self.seeds)
        if self.actors is None:
            return train_chunk
        envs, shards = self._chosen["envs_per_actor"], self._chosen["shards"]
        return WithActors(self.actors, envs, shards, self.address)

    def chunk(self) -> Chunk:
        """Return what the options describe.

        Raises:
            SpecError: One is unknown or breaks a rule.
        """
        from replaylab.study.plan import plan
        from replaylab.study.spec.components import LEARNERS, STRATEGIES
        from replaylab.study.spec.spec import Spec

        chosen = self._chosen
        budget = _passed({"steps": self.steps, "episodes": self.episodes}) or {"steps": DEFAULTS["steps"]}
        seeds = range(chosen["first_seed"], chosen["first_seed"] + chosen["seeds"])
        learner, strategy = (chosen[kind].rpartition(":")[2] for kind in ("learner", "strategy"))
        strategies = _part_of(chosen["strategy"], self.strategy_options, STRATEGIES, "--strategy")
        learner_options, transforms = self.learner_options, [_transform_of(text) for text in self.transforms]
        env_options = _options_of(self.env_options, "--env-options")
        if self.device is not None:
            learner_options += _on_device(self.device, chosen["env"], learner_options, transforms, env_options)
        strategies["transforms"] = transforms
        every = max(1, min(budget.values()) // 20) if self.eval_every is None else self.eval_every
        evaluation = _passed({"every": every, "episodes": self.eval_episodes, "held_out": self.held_out})
        spec = Spec.from_table(
            {
                "name": "train",
                "environments": [chosen["env"]],
                "learners": {learner: _part_of(chosen["learner"], learner_options, LEARNERS, "--learner")},
                "strategies": {strategy: strategies},
                "env_options": {chosen["env"]: env_options},
                "baseline": strategy,
                "seeds": tuple(seeds),
                "chunk_size": max(1, len(seeds)),
                "budget": budget,
                "evaluation": evaluation,
                **({} if self.device is None else {"measures": {"every": 0}}),
            },
            source="train",
        )
        return plan(spec)[0].model_copy(update={"seeds": tuple(seeds)})

    @property
    def _chosen(self) -> dict[str, Any]:
        """The options by name, with `DEFAULTS` for those that were not given."""
        seeds = 10 if self.actors is None and self.device is None else 1
        return DEFAULTS | {"seeds": seeds} | _passed(vars(self))


def _passed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were passed."""
    return {name: value for name, value in options.items() if value is not None}


def _check_no_run(folder: Path | None) -> None:
    """Raise SpecError if a folder to save in holds another saved run."""
    if folder is None:
        return
    saved = [folder / "run.json", folder / "distributed.json", *folder.glob("agents-*.npz")]
    if any(file.is_file() for file in saved):
        by_command = (folder / "chunk.json").is_file()  # else saved from Python, which has to continue it
        fix = f"continue with it (--resume {folder}), or give another folder" if by_command else "give another folder"
        raise SpecError(f"train: --save must be a folder without a run, but {folder} holds one; {fix}")


def _check_replaceable(out: Path | None) -> None:
    """Raise SpecError if the file to write exists and is not Parquet."""
    if out is None or not out.is_file() or not out.stat().st_size:
        return
    with out.open("rb") as file:
        if file.read(4) != b"PAR1":
            raise SpecError(
                f"train: --out must be a new file, or one of Parquet to replace, but {out} is another one; give "
                "another name, or move it away"
            )


def _part_of(kind: str, options: Iterable[str], catalogue: Catalogue, where: str) -> dict[str, Any]:
    """Return the table of a learner or a strategy.

    Args:
        kind: A type of the catalogue, or ``module:Class``.
        options: ``key=value``, values as in TOML.
        catalogue: Its types.
        where: The option of the command line that names it.

    Raises:
        SpecError: An option is unknown or breaks a rule.
    """
    from replaylab.study.spec.components import Part, resolve

    part = Part.of(kind, _options_of(options, f"{where}-options"))
    return resolve(part, catalogue, where, "train").model_dump()


def _transform_of(text: str) -> dict[str, Any]:
    """Return the table of a transform: ``type`` or ``type:key=value,key=value``, values as in TOML."""
    kind, _, options = text.partition(":")
    return {"type": kind, **_options_of([option for option in options.split(",") if option], "--transforms")}


def _options_of(texts: Iterable[str], where: str) -> dict[str, Any]:
    """Return options ``key=value`` of a command line as a table; each name may be given once."""
    pairs = [_option(text, where) for text in texts]
    names = [name for name, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SpecError(f"train: {where} must give each name once, but got {twice[0]} {names.count(twice[0])} times")
    return dict(pairs)


def _on_device(
    device: str,
    env_id: str,
    learner_options: Iterable[str],
    transforms: list[dict[str, Any]],
    env_options: dict[str, Any],
) -> tuple[str, ...]:
    """Return further options of a learner that learns on a device.

    Of an Atari game that has no backend, it also adds to the options of the environment, and, without a stack of
    frames, to the transforms.

    Args:
        device: PyTorch's name of it.
        env_id: The environment.
        learner_options: The learner's options ``key=value``.
        transforms: Tables of transforms.
        env_options: Options of the environment.
    """
    from replaylab.envs.atari import is_atari

    options = [f'device="{device}"', 'replay="device"']
    if is_atari(env_id.rpartition(":")[2]) and env_options.setdefault("backend", "ale") == "ale":
        if not any(option.startswith("envs=") for option in learner_options):
            options.append(f"envs={_GAMES}")
        frames = env_options.get("frame_stack", 4)
        if frames != 1 and not any(transform["type"] == "frame_stack" for transform in transforms):
            transforms.append({"type": "frame_stack", "length": frames, "padding": "zero", "stacked_input": True})
    return tuple(options)


def _option(text: str, where: str) -> tuple[str, Any]:
    """Split ``key=value``; a value that is not TOML is text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SpecError(f"train: {where} take KEY=VALUE, but got {text!r}.")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
