"""What an executor answers, checked: one of your own may answer anything, and no task may get lost by it."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from replaylab.arguments import NOT_NEGATIVE, Rule, Unfit, checked, instance, optional, text, whole
from replaylab.errors import ConfigError
from replaylab.study.execution.executor import Executor, Finished, Lost, Progress, Raised
from replaylab.study.results.provenance import Machine

_MACHINE = instance(Machine, "a Machine, such as this_machine() in the worker")
_MEMBERS: dict[type[Any], dict[str, Rule[Any]]] = {
    Progress: {"step": whole(0)},
    Finished: {"result": instance(bytes, "bytes"), "seconds": NOT_NEGATIVE, "machine": _MACHINE},
    Raised: {"traceback": text, "refused": optional(text), "message": text},
    Lost: {"reason": text, "machine": optional(_MACHINE)},
}


def checked_slots(executor: Executor) -> int:
    """Return how many tasks an executor works on at once; where it has no worker just now, one task waits there.

    Raises:
        ConfigError: its `slots` is no such number.
    """
    return max(1, checked("slots", executor.slots, whole(0), _name(executor)))


def checked_ticket(executor: Executor, ticket: Any, given: Set[int]) -> int:
    """Return the ticket that `submit` gave.

    Args:
        executor: whose.
        ticket: what came.
        given: the tickets before it.

    Raises:
        ConfigError: it is no number, or one that it has given before.
    """

    def new(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value in given:
            raise Unfit("a whole number that is never used again")
        return value

    return checked("submit", ticket, new, _name(executor))


def check_event(executor: Executor, event: Any) -> None:
    """Look at what `wait` told.

    Raises:
        ConfigError: it is no event, or has something else in the place of a member.
    """
    for kind, members in _MEMBERS.items():
        if isinstance(event, kind):
            for name, rule in members.items():
                checked(name, getattr(event, name), rule, f"the {kind.__name__} that {_name(executor)} tells")
            return
    raise ConfigError(
        f"`wait` of {_name(executor)} must tell a Progress, Finished, Raised or Lost, but got {event!r:.200}"
    )


def _name(executor: Executor) -> str:
    return type(executor).__name__
