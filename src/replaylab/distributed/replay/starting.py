"""Starting of shards: the connection to Ray, the folder for snapshots, and the memory of nodes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import NamedTemporaryFile

from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay.options import RemoteOptions
from replaylab.distributed.replay.shard import ActorLost, Declaration
from replaylab.distributed.replay.snapshots import Saving
from replaylab.distributed.replay.writer import Client
from replaylab.errors import OverSizeError, StorageError
from replaylab.files.atomic import writing

Start = Callable[[str, Sequence[Declaration]], Sequence[Client]]


def connect(options: RemoteOptions, opened: ExitStack) -> Start:
    """Connect to Ray, until `opened` is closed, and return a function that starts shards."""
    session = RaySession(options.address)
    opened.callback(session.close)
    session.open()
    from replaylab.distributed.replay.calls import start_shards  # imports Ray

    return lambda run, declarations: start_shards(run, declarations, options.placement)


def started(
    start: Start, run: str, declarations: Sequence[Declaration], probe: str | None, opened: ExitStack
) -> Sequence[Client]:
    """Start shards, which end with `opened`, and wait until they have begun.

    Raises:
        ActorLost: A shard ended.
        OverSizeError: Those on a node need more memory than it has.
        StorageError: A shard cannot write to the folder for snapshots.
    """
    clients = start(run, declarations)
    for client in clients:
        opened.callback(client.kill)
    surveys = [pending.result() for pending in [client.call("survey", probe) for client in clients]]
    for node, memory, _ in surveys:
        needed = [survey[2] for survey in surveys if survey[0] == node]
        if sum(needed) > memory:
            raise OverSizeError(
                f"{len(needed)} shards on node {node} need {sum(needed) / 2**20:,.1f} MiB together, but it has "
                f'{memory / 2**20:,.1f} MiB; use a smaller capacity, store less in a step (next_obs="derived", '
                'compressed or smaller fields), or add nodes and pass placement="spread"'
            )
    for pending in [client.call("begin") for client in clients]:
        pending.result()
    return clients


@contextmanager
def all_begin() -> Iterator[None]:
    """Raise `StorageError` if a shard ends meanwhile."""
    try:
        yield
    except ActorLost as error:
        raise StorageError(f"a shard ended before all had begun: {str(error).partition(chr(10))[0]}") from error


@contextmanager
def probed(saving: Saving | None) -> Iterator[str | None]:
    """Yield a temporary file in the folder for snapshots, None without one; raise if it cannot be written."""
    if saving is None:
        yield None
        return
    with writing(saving.folder):
        saving.folder.mkdir(parents=True, exist_ok=True)
        file = NamedTemporaryFile(dir=saving.folder, prefix=".probe-")  # noqa: SIM115 - closed below
    with file:
        yield file.name
