"""The executor that the command line asks for."""

from __future__ import annotations

from replaylab.errors import SpecError
from replaylab.study import Executor, InProcess, LocalProcesses


def chosen_executor(
    name: str, workers: int | None, address: str | None, cores: float | None, gpus: float | None
) -> Executor:
    """Return it.

    Args:
        name: local, in-process or ray.
        workers: chunks at once, of local and ray.
        address: of ray, as are the next two.
        cores: of one chunk.
        gpus: of one chunk.

    Raises:
        SpecError: an option is given that this executor does not have.
        ConfigError: a number is out of its range, or the address is none.
        MissingExtraError: Ray is asked for, and not installed.
    """
    if name == "ray":
        from replaylab.distributed.studies import RayExecutor

        return RayExecutor(address, workers=workers, cores=1.0 if cores is None else cores, gpus=gpus or 0.0)
    for option, value in {"address": address, "cores": cores, "gpus": gpus}.items():
        if value is not None:
            raise SpecError(f"study run: --{option} needs --executor ray, but got --executor {name}; leave it out")
    if name == "local":
        return LocalProcesses(workers)
    if workers is not None:
        raise SpecError(f"study run: --workers needs --executor local or ray, but got --executor {name}; leave it out")
    return InProcess()
