"""Records that ``replaylab train --save`` writes beside a checkpoint: the chunk, and the period of saving."""

import json
from pathlib import Path

from replaylab.commands import actors
from replaylab.errors import SnapshotError
from replaylab.files.atomic import write_text
from replaylab.study.plan import Chunk
from replaylab.study.spec.components import json_data
from replaylab.study.spec.errors import first_fault

SAVING = "saving.json"
"""Beside chunk.json: how often the run is saved."""


def describe_run(folder: Path, begun: Chunk | None, save_every: int | None) -> None:
    """Write the period of saving, and for a new run also its chunk."""
    if begun is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / actors.FILE).unlink(missing_ok=True)  # of a run that was there before; actors write their own
        write_text(folder / "chunk.json", json.dumps(json_data(begun), indent=1))
    write_text(folder / SAVING, json.dumps({"save_every": save_every}))


def saved_chunk(folder: Path) -> Chunk:
    """Return the chunk whose run was saved in a folder.

    Raises:
        SnapshotError: the folder holds no run, or a damaged one.
    """
    file = folder / "chunk.json"
    if not file.is_file():
        raise SnapshotError(f"{folder} holds no run: there is no chunk.json in it; pass the folder of --save")
    try:
        return Chunk.model_validate_json(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SnapshotError(f"{file} is damaged: {first_fault(error)}; use another copy") from error


def saved_period(folder: Path) -> int | None:
    """Return the period of saving, or None if it is not recorded."""
    try:
        period = json.loads((folder / SAVING).read_text(encoding="utf-8"))["save_every"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return period if isinstance(period, int) and period > 0 else None


def default_save_period(chunk: Chunk) -> int | None:
    """Return a tenth of the budget, or None where the environment cannot continue from a checkpoint."""
    from replaylab.envs import env_state, make_vector_env

    env_id, options = chunk.made_of
    env = make_vector_env(env_id, 1, **options)
    try:
        return max(1, chunk.steps // 10) if env_state.possible(env) else None
    finally:
        env.close()
