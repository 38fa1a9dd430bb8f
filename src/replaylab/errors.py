"""Every error replaylab raises on purpose.

Each is also the built-in a caller would expect, so ``except ValueError`` works as well::

    ReplayError (Exception)
    ├── FieldError (ValueError)          a field is unknown, missing, or badly declared
    ├── ShapeError (ValueError)          an array's shape breaks the axis rule
    ├── DtypeError (TypeError)           an array's dtype cannot be stored without loss of kind
    ├── EmptyBufferError (LookupError)   nothing, or not enough, is stored to draw from
    ├── IdError (ValueError)             an id was never assigned
    ├── PriorityError (ValueError)       a priority or TD error is negative, NaN or infinite
    ├── NonFiniteError (ValueError)      an environment's reward or observation is NaN or infinite
    ├── OverSizeError (MemoryError)      the buffer would not fit into this machine's memory
    ├── ConfigError (ValueError)         an option is out of its range
    ├── SnapshotError (ValueError)       a saved buffer is damaged, foreign, or not complete
    ├── StorageError (OSError)           a file, or rows outside this process, cannot be made or opened, or is damaged
    ├── SpecError (ValueError)           a study file is wrong
    ├── MissingExtraError (ImportError)  an optional dependency is not installed
    └── MissingCoreError (ImportError)   the compiled core is not built

A message names the field, the rule, the value that was given, and the fix. After any of them the
buffer is unchanged, except that its random stream has advanced if a function of yours failed while a batch was drawn
(the score of `LaBER`, the reward of `Hindsight`).
"""

__all__ = [
    "ConfigError",
    "DtypeError",
    "EmptyBufferError",
    "FieldError",
    "IdError",
    "MissingCoreError",
    "MissingExtraError",
    "NonFiniteError",
    "OverSizeError",
    "PriorityError",
    "ReplayError",
    "ShapeError",
    "SnapshotError",
    "SpecError",
    "StorageError",
]


class ReplayError(Exception):
    """Base of every error replaylab raises on purpose."""


class FieldError(ReplayError, ValueError):
    """A field is unknown, missing, or badly declared."""


class ShapeError(ReplayError, ValueError):
    """An array's shape breaks the axis rule."""


class DtypeError(ReplayError, TypeError):
    """An array's dtype cannot be stored without loss of kind."""


class EmptyBufferError(ReplayError, LookupError):
    """Nothing, or not enough, is stored to draw from."""


class IdError(ReplayError, ValueError):
    """An id was never assigned by this buffer."""


class PriorityError(ReplayError, ValueError):
    """A priority or TD error is negative, NaN or infinite."""


class NonFiniteError(ReplayError, ValueError):
    """An environment's reward or observation is NaN or infinite."""


class OverSizeError(ReplayError, MemoryError):
    """The buffer would not fit into this machine's memory."""


class ConfigError(ReplayError, ValueError):
    """An option is out of its range."""


class SnapshotError(ReplayError, ValueError):
    """A saved buffer is damaged, foreign, or not complete."""


class StorageError(ReplayError, OSError):
    """Rows in a file or in shared memory, a snapshot, or a study's results cannot be made, opened or added to."""


class SpecError(ReplayError, ValueError):
    """A study file is wrong."""


class MissingExtraError(ReplayError, ImportError):
    """An optional dependency is not installed; the message holds the install command."""


class MissingCoreError(ReplayError, ImportError):
    """The compiled core is not built; the message holds the command that builds it."""
