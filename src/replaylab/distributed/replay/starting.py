"""Starting of shards, and calls of all of them at once."""

from collections.abc import Callable
from collections.abc import Sequence as ListOf
from contextlib import ExitStack
from tempfile import NamedTemporaryFile
from typing import Any

from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay.options import RemoteOptions
from replaylab.distributed.replay.shard import ActorLost, Declaration
from replaylab.distributed.replay.writer import Client
from replaylab.errors import OverSizeError, StorageError
from replaylab.files.atomic import writing

Start = Callable[[str, ListOf[Declaration]], ListOf[Client]]
"""A function that starts the shards of a run."""


def connect(options: RemoteOptions, opened: ExitStack) -> Start:
    """Connect to Ray, until `opened` is closed, and return a function that starts shards."""
    session = RaySession(options.address)
    opened.callback(session.close)
    session.open()
    from replaylab.distributed.replay.calls import start_shards  # imports Ray

    return lambda run, declarations: start_shards(run, declarations, options.placement)


def started(start: Start, run: str, declarations: ListOf[Declaration], opened: ExitStack) -> ListOf[Client]:
    """Start shards, which end with `opened`, and wait until they have begun.

    Raises:
        OverSizeError: Those on a node need more memory than it has.
        StorageError: A shard ended, or it cannot write to the folder for snapshots.
    """
    saving, probe = declarations[0].saving, None
    with ExitStack() as checking:
        if saving is not None:  # all nodes must see this file
            with writing(saving.folder):
                saving.folder.mkdir(parents=True, exist_ok=True)
                probe = checking.enter_context(NamedTemporaryFile(dir=saving.folder, prefix=".probe-")).name
        clients = start(run, declarations)
        for client in clients:
            opened.callback(client.kill)
        surveys = results(clients, "survey", probe)
    for node, memory, _ in surveys:
        needed = [survey[2] for survey in surveys if survey[0] == node]
        if sum(needed) > memory:
            raise OverSizeError(
                f"{len(needed)} shards on node {node} need {sum(needed) / 2**20:,.1f} MiB together, but it has "
                f'{memory / 2**20:,.1f} MiB; use a smaller capacity, store less in a step (next_obs="derived", '
                'compressed or smaller fields), or add nodes and pass placement="spread"'
            )
    results(clients, "begin")
    return clients


def results(clients: ListOf[Client], method: str, *arguments: Any) -> list[Any]:
    """Call a method of shards, and return the results.

    Raises:
        StorageError: A shard ended.
    """
    try:
        return [pending.result() for pending in [client.call(method, *arguments) for client in clients]]
    except ActorLost as error:
        raise StorageError(f"a shard ended before all had begun: {str(error).partition(chr(10))[0]}") from error
