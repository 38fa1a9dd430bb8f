"""Files with what agents have learned: ``agents-SEED.npz`` for each seed."""

import os

from replaylab.errors import SnapshotError
from replaylab.files import npy
from replaylab.files.bundle import reading
from replaylab.files.folder import folder_of
from replaylab.learners.api.protocols import Agents


def save_agents(folder: str | os.PathLike[str], agents: Agents, seeds: list[int]) -> None:
    """Write each agent's state to ``agents-SEED.npz``, with first axis 1; `Agents.restore` takes these arrays."""
    path, state = folder_of(folder, "save_agents"), agents.state()
    for r, seed in enumerate(seeds):
        npy.write_arrays(path / f"agents-{seed}.npz", {k: v[r : r + 1] if v.ndim else v for k, v in state.items()})


def load_agents(folder: str | os.PathLike[str], agents: Agents, seed: int) -> None:
    """Restore a single agent, made in the same way, from what `save_agents` wrote for a seed.

    Raises:
        SnapshotError: The file of this seed is missing.
    """
    file = folder_of(folder, "load_agents") / f"agents-{seed}.npz"
    if not file.is_file():
        raise SnapshotError(
            f"{file} is missing: the run of seed {seed} did not end, or was not saved; train it with Checkpoints"
        )
    with reading(file, "file of agents"):
        agents.restore(npy.read_arrays(file))
