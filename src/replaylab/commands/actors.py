"""One seed from the command line, trained on what several actors store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replaylab.errors import SnapshotError, SpecError
from replaylab.files.atomic import write_text
from replaylab.study.plan.populations import Population

if TYPE_CHECKING:
    from replaylab.learners import Hook, TrainingRun

FILE = "actors.json"
"""Beside population.json in the folder of a run that is saved."""


@dataclass(frozen=True)
class WithActors:
    """What trains a population of one seed by actors, in the way of `train_population`.

    Attributes:
        count: N.
        envs: Environments of each actor.
        shards: S.
        samples_per_insert: Rows learned from for each step stored; None: as the learner's settings say.
        address: Of a Ray cluster; None: a Ray of its own.
    """

    count: int
    envs: int = 1
    shards: int = 2
    samples_per_insert: float | None = None
    address: str | None = None

    @classmethod
    def saved(cls, folder: Path, address: str | None) -> WithActors | None:
        """Return what a saved run is trained by; None: it is trained in one process.

        Raises:
            SnapshotError: The file is damaged.
        """
        file = folder / FILE
        if not file.is_file():
            return None
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")), address=address)
        except (OSError, ValueError, TypeError) as error:
            raise SnapshotError(f"{file} is damaged: {error}; use another copy") from error

    def __call__(
        self,
        population: Population,
        on_step: Callable[[int], None],
        on_metrics: Callable[[int, Mapping[str, Any]], None],
        *,
        hooks: Sequence[Hook],
        resume: Path | None,
    ) -> dict[str, Any]:
        """Train the population and return its columns."""
        from replaylab.distributed import Actors, Shards, train
        from replaylab.learners import Callbacks, Checkpoints, Hook

        actors, shards = Actors(self.count, self.envs), Shards(self.shards)
        for hook in hooks:
            if isinstance(hook, Checkpoints):
                options = {name: value for name, value in asdict(self).items() if name != "address"}
                write_text(hook.folder / FILE, json.dumps(options, indent=1))
        told = Callbacks(progress=on_step, on_metrics=on_metrics)

        class Place(Hook):
            def on_begin(self, run: TrainingRun) -> None:  # noqa: ARG002
                import ray

                address = ray.get_runtime_context().gcs_address
                token = "RAY_AUTH_MODE=token " if os.environ.get("RAY_AUTH_MODE") == "token" else ""
                print(f"to look at it: {token}replaylab cluster status --address {address}", flush=True)

        metrics = train(
            replace(population.configuration(), measure_every=None),  # whose rows are in the shards
            population.seeds[0],
            actors=actors,
            shards=shards,
            samples_per_insert=self.samples_per_insert,
            address=self.address,
            hooks=[Place(), told, *hooks],
            resume=resume,
        )
        columns: dict[str, Any] = metrics.columns
        return columns


def check_options(options: Mapping[str, Any], seeds: int | None) -> None:
    """Raise SpecError for options of actors without actors, and for several seeds with them.

    Args:
        options: of the command line, by name; `actors` among them.
        seeds: as given.
    """
    if options["actors"] is None:
        for name, value in options.items():
            if value is not None:
                raise SpecError(f"train: --{name.replace('_', '-')} needs --actors, the number of them; add it")
    elif seeds not in (None, 1):
        raise SpecError(f"train: --seeds must be 1 with --actors, which train one learner, but got {seeds}")
