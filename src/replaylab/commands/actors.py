"""Training of one seed from the command line on the steps of several actors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replaylab.errors import SnapshotError, SpecError
from replaylab.files.atomic import write_text
from replaylab.study.plan import Chunk

if TYPE_CHECKING:
    from replaylab.learners import Hook, TrainingRun

FILE = "actors.json"
"""Beside chunk.json in the folder of a run that is saved."""


@dataclass(frozen=True)
class WithActors:
    """Training of a chunk of one seed by actors, in the way of `train_chunk`.

    Attributes:
        count: N.
        envs: Environments of each actor.
        shards: S.
        address: Address of a Ray cluster; None: a Ray started here.
    """

    count: int
    envs: int
    shards: int
    address: str | None

    @classmethod
    def saved(cls, folder: Path, address: str | None, shards: int | None) -> WithActors | None:
        """Return the actors that a saved run continues with, or None if it was trained in one process.

        Args:
            folder: of the run.
            address: see `WithActors`.
            shards: S from now on; None: as before.

        Raises:
            SnapshotError: The file is damaged.
            SpecError: An option is for runs with actors only.
        """
        file = folder / FILE
        if not file.is_file():
            for option, value in (("shards", shards), ("address", address)):
                if value is not None:
                    raise SpecError(f"train: --{option} is for runs with actors, but {folder} holds none; leave it out")
            return None
        try:
            before = cls(**json.loads(file.read_text(encoding="utf-8")), address=address)
        except (OSError, ValueError, TypeError) as error:
            raise SnapshotError(f"{file} is damaged: {error}; use another copy") from error
        return before if shards is None else replace(before, shards=shards)

    def __call__(
        self,
        chunk: Chunk,
        on_step: Callable[[int], None],
        on_metrics: Callable[[int, Mapping[str, Any]], None],
        *,
        hooks: Sequence[Hook],
        resume: Path | None,
    ) -> dict[str, Any]:
        """Train the chunk and return its columns."""
        from replaylab.distributed import Actors, Shards, train
        from replaylab.distributed.ray_session import joined_address
        from replaylab.learners import Callbacks, Checkpoints, Hook

        actors, shards = Actors(self.count, self.envs), Shards(self.shards)
        for hook in hooks:
            if isinstance(hook, Checkpoints):
                options = {name: value for name, value in asdict(self).items() if name != "address"}
                write_text(hook.folder / FILE, json.dumps(options, indent=1))
        callbacks = Callbacks(progress=on_step, on_metrics=on_metrics)

        class Place(Hook):
            def on_begin(self, run: TrainingRun) -> None:  # noqa: ARG002
                address = joined_address()
                token = "RAY_AUTH_MODE=token " if os.environ.get("RAY_AUTH_MODE") == "token" else ""
                print(f"to query it: {token}replaylab cluster status --address {address}", flush=True)

        metrics = train(
            replace(chunk.configuration(), measure_every=None),  # whose rows are in the shards
            chunk.seeds[0],
            actors=actors,
            shards=shards,
            address=self.address,
            hooks=[Place(), callbacks, *hooks],
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
