"""Ctrl-C and SIGTERM while something must not be left half done.

A `KeyboardInterrupt` while pydantic serializes a chunk becomes an error of pydantic, so what reads ids or sends tasks
is protected, too.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Delay the first Ctrl-C or SIGTERM until the block has ended; a second one takes effect at once.

    Signals without a Python handler are unchanged, and so are all signals outside of the main thread, since only the
    main thread can set handlers.
    """
    if current_thread() is not main_thread():
        yield
        return
    handlers: dict[int, Any] = {
        number: handler for number in (signal.SIGINT, signal.SIGTERM) if callable(handler := signal.getsignal(number))
    }
    delayed: list[int] = []

    def delay(number: int, frame: Any) -> None:
        if delayed:
            handlers[number](number, frame)
        delayed.append(number)

    for number in handlers:
        signal.signal(number, delay)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if delayed:
            signal.raise_signal(delayed[0])
