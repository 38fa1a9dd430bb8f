"""Resources of this machine."""

import os
from pathlib import Path


def machine_memory() -> int:
    """Return the bytes of memory this process may have at most: the machine's, or its container's."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # no such system call on this platform: no limit is known
        memory = 2**62
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory
