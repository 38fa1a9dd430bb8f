"""Experience replay for your own agents, and a laboratory that compares replay strategies.

``import replaylab`` needs NumPy and the compiled core, nothing else. The laboratory lives in
``replaylab.envs``, ``replaylab.learners`` and ``replaylab.study`` (``pip install "replaylab[lab]"``).
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from pathlib import Path as _Path

from replaylab.errors import MissingCoreError as _MissingCoreError
from replaylab.errors import ReplayError

try:
    _import_module("replaylab._core")
except ImportError as _error:
    _source = _Path(__file__).parents[2]
    _requirement = (
        f'"{_source}"' if (_source / "pyproject.toml").is_file() else "--force-reinstall --no-cache-dir replaylab"
    )
    raise _MissingCoreError(
        f"replaylab's compiled core cannot be imported ({_error}); build it, with CMake and a C++ compiler: "
        f"python -m pip install {_requirement}"
    ) from _error

from replaylab.replay import Batch, Field, ReplayBuffer

_import_module("replaylab.research")  # so that snapshots with its samplers load

__all__ = ["Batch", "Field", "ReplayBuffer", "ReplayError", "__version__"]

__version__: str = _version("replaylab")
