"""Where the system refuses to write: an error that names the path, the reason and the mend."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from replaylab.errors import ReplayError, StorageError

_MENDS = {
    errno.ENOSPC: "Free some space there, and give the same command again.",
    errno.EDQUOT: "Free some space there, and give the same command again.",
    errno.EFBIG: "Raise the limit of the size of files, and give the same command again.",
    errno.EACCES: "Give another place, or the right to write there.",
    errno.EPERM: "Give another place, or the right to write there.",
    errno.EROFS: "Give another place, or the right to write there.",
    errno.EEXIST: "A file is where a folder is needed: give another place, or move it away.",
    errno.ENOTDIR: "A file is where a folder is needed: give another place, or move it away.",
    errno.EISDIR: "A folder is where a file is needed: give another place, or move it away.",
}


@contextmanager
def writing(path: str | PathLike[str]) -> Iterator[None]:
    """Turn the system's refusal to write into an error that names the path, the reason and the mend.

    Raises:
        StorageError: something inside the block could not be written.
    """
    try:
        yield
    except ReplayError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).rstrip(".")
        mend = _MENDS.get(error.errno or 0, "Give another place.")
        raise StorageError(f"{path} cannot be written: {reason}. {mend}") from error
