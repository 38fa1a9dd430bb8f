"""States of NumPy's generators as arrays, for exact checkpoints."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LOW = (1 << 64) - 1


def packed(generators: Sequence[np.random.Generator]) -> npt.NDArray[np.uint64]:
    """Return the states of PCG64 generators, uint64 (E, 6).

    Example:
        >>> generator = np.random.default_rng(3)
        >>> (restored,) = unpack(packed([generator]))
        >>> restored.random() == generator.random()
        True
    """
    rows = []
    for generator in generators:
        entries = generator.bit_generator.state
        state, inc = entries["state"]["state"], entries["state"]["inc"]
        rows.append((state >> 64, state & LOW, inc >> 64, inc & LOW, entries["has_uint32"], entries["uinteger"]))
    return np.array(rows, np.uint64).reshape(-1, 6)


def unpack(states: npt.NDArray[np.uint64]) -> list[np.random.Generator]:
    """Return new generators in the given states."""
    generators = []
    for row in states:
        high, low, inc_high, inc_low, has_uint32, uinteger = (int(number) for number in row)
        bits = np.random.PCG64()
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        generators.append(np.random.Generator(bits))
    return generators
