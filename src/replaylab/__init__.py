"""Experience replay for your own agents, and a laboratory that compares replay strategies.

``import replaylab`` needs NumPy and the compiled core, nothing else. The laboratory lives in
``replaylab.envs``, ``replaylab.learners`` and ``replaylab.study`` (``pip install "replaylab[lab]"``).
"""

from importlib.metadata import version as _version

from replaylab.errors import ReplayError
from replaylab.replay import Batch, Field, ReplayBuffer

__all__ = ["Batch", "Field", "ReplayBuffer", "ReplayError", "__version__"]

__version__: str = _version("replaylab")
