"""The status of a cluster: its replays in shards, and the trainings that store in them."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from replaylab.arguments import optional, takes, text
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay.figures import ShardFigures, figures_from

SECONDS_TO_ANSWER = 5.0
"""How long a shard may take; it may be saving itself."""


@dataclass(frozen=True)
class ReplayStatus:
    """One replay in shards, as seen from outside.

    Attributes:
        run: The run's id.
        shards: Figures of each shard that answers; losses of former ones are known only if a training reports them.
        silent: Numbers of shards that did not answer in time.
        training: The last report of the training that stores in it, by name; None without a training.
    """

    run: str
    shards: tuple[ShardFigures, ...]
    silent: tuple[int, ...]
    training: dict[str, Any] | None

    def lines(self) -> Iterator[str]:
        """Yield the status as text, a line for the training and one for each shard."""
        run = self.training
        if run:
            yield (
                f"training {self.run[:8]}: {run['environment']}, {run['learner']}, step {run['steps']:,} of "
                f"{run['total_steps']:,} ({run['steps_per_second']:,.0f} a second), {run['updates']:,} updates "
                f"({run['updates_per_second']:,.0f} a second, {run['skipped_updates']:,} skipped); "
                f"{run['actors']} actors, {run['actor_losses']} lost with {run['lost_actor_steps']:,} steps"
            )
        size, added = (sum(getattr(shard, name) for shard in self.shards) for name in ("size", "added"))
        line = f"replay {self.run[:8]}: {len(self.shards)} shards, {size:,} steps stored now, {added:,} so far"
        if run:
            replay = run["replay"]
            line += (
                f", {replay['samples']:,} rows drawn ({replay['samples_per_insert']:.2f} a step), {replay['losses']} "
                f"shards lost with {replay['lost_steps']:,} steps, {replay['stale_updates']:,} stale updates"
            )
            if replay["snapshot_error"]:
                line += f", snapshots fail ({replay['snapshot_error']})"
        yield line
        for shard in self.shards:
            lost = "" if shard.losses is None else f"lost {shard.losses} times with {shard.lost_steps:,} steps, "
            yield (
                f"  shard {shard.number}: epoch {shard.epoch}, {shard.size:,} steps, total {shard.total:.6g}, "
                f"{shard.adds_per_second:,.0f} adds and {shard.draws_per_second:,.0f} draws a second, {lost}"
                f"{shard.nbytes / 2**20:,.1f} MiB on node {shard.node[:8]}"
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
        from replaylab.distributed.replay.shards.ray_transport import newest_actors  # imports Ray

        return [_status(run, slots) for run, slots in sorted(newest_actors().items())]


def _status(run: str, slots: dict[str, tuple[int, str]]) -> ReplayStatus:
    import ray

    from replaylab.distributed.training.status_board import NAME

    answers = {int(slot): _ask(name, "figures") for slot, (_, name) in slots.items() if slot.isdigit()}
    board = _ask(slots[NAME][1], "read") if NAME in slots else None
    references = [reference for reference in (*answers.values(), board) if reference is not None]
    ready = (
        set(ray.wait(references, num_returns=len(references), timeout=SECONDS_TO_ANSWER)[0]) if references else set()
    )
    training = None
    if board in ready:
        with suppress(ray.exceptions.RayError):  # the training has ended since
            training = ray.get(board)
    lost = {shard["number"]: shard for shard in training["replay"]["shards"]} if training else {}
    shards, silent = [], []
    for number, reference in sorted(answers.items()):
        answer = None
        if reference in ready:
            with suppress(ray.exceptions.RayError):  # it has died since
                answer = ray.get(reference)
        if answer is None:
            silent.append(number)
            continue
        about = {name: lost.get(number, {}).get(name) for name in ("losses", "lost_steps")}
        shards.append(figures_from(number, answer, about))
    return ReplayStatus(run, tuple(shards), tuple(silent), training or None)


def _ask(name: str, method: str) -> Any:
    """Return the reference of an actor's answer; None if the actor has ended."""
    import ray

    from replaylab.distributed.replay.shards.ray_transport import NAMESPACE

    try:
        return getattr(ray.get_actor(name, NAMESPACE), method).remote()
    except ValueError:
        return None
