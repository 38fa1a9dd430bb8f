"""What runs in a cluster: the replays in shards, and the trainings that store in them."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from replaylab.arguments import optional, takes, text
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay.figures import ShardFigures, told_figures

SECONDS_TO_ANSWER = 5.0
"""How long a shard may take; it may be saving itself."""


@dataclass(frozen=True)
class ReplayStatus:
    """One replay in shards, as seen from outside.

    Attributes:
        run: What tells it from others.
        shards: Figures of each that answers; what was lost with former ones is known where a training tells of it.
        silent: Numbers of shards that did not answer in time.
        training: What the training that stores in it last told, by name; None: there is none.
    """

    run: str
    shards: tuple[ShardFigures, ...]
    silent: tuple[int, ...]
    training: dict[str, Any] | None

    def lines(self) -> Iterator[str]:
        """Yield it in words, a line for the training and one for each shard."""
        told = self.training
        if told:
            yield (
                f"training {self.run[:8]}: {told['environment']}, {told['learner']}, step {told['steps']:,} of "
                f"{told['total_steps']:,} ({told['steps_per_second']:,.0f} a second), {told['updates']:,} updates "
                f"({told['updates_per_second']:,.0f} a second, {told['skipped_updates']:,} skipped); "
                f"{told['actors']} actors, {told['actor_losses']} lost with {told['lost_actor_steps']:,} steps"
            )
        size, added = (sum(getattr(one, name) for one in self.shards) for name in ("size", "added"))
        line = f"replay {self.run[:8]}: {len(self.shards)} shards, {size:,} steps stored now, {added:,} so far"
        if told:
            replay = told["replay"]
            line += (
                f", {replay['samples']:,} rows drawn ({replay['samples_per_insert']:.2f} a step), {replay['losses']} "
                f"shards lost with {replay['lost_steps']:,} steps, {replay['stale_updates']:,} stale updates"
            )
        yield line
        for one in self.shards:
            lost = "" if one.losses is None else f"lost {one.losses} times with {one.lost_steps:,} steps, "
            yield (
                f"  shard {one.number}: epoch {one.epoch}, {one.size:,} steps, total {one.total:.6g}, "
                f"{one.adds_per_second:,.0f} adds and {one.draws_per_second:,.0f} draws a second, {lost}"
                f"{one.nbytes / 2**20:,.1f} MiB on node {one.node[:8]}"
            )
        for number in self.silent:
            yield f"  shard {number}: no answer within {SECONDS_TO_ANSWER:.0f} seconds"


@takes(address=optional(text))
def cluster_status(address: str | None = "auto") -> list[ReplayStatus]:
    """Return what runs in a cluster.

    Args:
        address: ``"host:port"`` of a Ray cluster; ``"auto"``: the one that runs on this machine; None: the one that
            this process is connected to.

    Raises:
        ConfigError: No cluster answers.
        MissingExtraError: Ray is not installed.
    """
    with closing(RaySession(address)) as session:
        session.open()
        return [_status(run, places) for run, places in sorted(_found().items())]


def _found() -> dict[str, dict[str, str]]:
    """Return the names of the newest actors of every run, by their places."""
    import ray

    from replaylab.distributed.replay.shards.ray_transport import NAMESPACE

    found: dict[str, dict[str, tuple[int, str]]] = {}
    for one in ray.util.list_named_actors(all_namespaces=True):
        run, _, rest = one["name"].partition("/")
        place, _, epoch = rest.partition("/")
        if one["namespace"] != NAMESPACE or not rest:
            continue
        places = found.setdefault(run, {})
        places[place] = max(places.get(place, (-1, "")), (int(epoch or 0), one["name"]))
    return {run: {place: name for place, (_, name) in places.items()} for run, places in found.items()}


def _status(run: str, places: dict[str, str]) -> ReplayStatus:
    import ray

    from replaylab.distributed.training.board import NAME

    asked = {int(place): _ask(name, "figures") for place, name in places.items() if place.isdigit()}
    board = _ask(places[NAME], "read") if NAME in places else None
    references = [one for one in (*asked.values(), board) if one is not None]
    ready = (
        set(ray.wait(references, num_returns=len(references), timeout=SECONDS_TO_ANSWER)[0]) if references else set()
    )
    training = None
    if board in ready:
        with suppress(ray.exceptions.RayError):  # the training has ended since
            training = ray.get(board)
    lost = {one["number"]: one for one in training["replay"]["shards"]} if training else {}
    shards, silent = [], []
    for number, reference in sorted(asked.items()):
        answer = None
        if reference in ready:
            with suppress(ray.exceptions.RayError):  # it has died since
                answer = ray.get(reference)
        if answer is None:
            silent.append(number)
            continue
        about = {name: lost.get(number, {}).get(name) for name in ("losses", "lost_steps")}
        shards.append(told_figures(number, answer, about))
    return ReplayStatus(run, tuple(shards), tuple(silent), training or None)


def _ask(name: str, method: str) -> Any:
    """Return the reference of an actor's answer; None: it is gone."""
    import ray

    from replaylab.distributed.replay.shards.ray_transport import NAMESPACE

    try:
        return getattr(ray.get_actor(name, NAMESPACE), method).remote()
    except ValueError:
        return None
