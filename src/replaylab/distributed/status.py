"""The status of a cluster: its replays in shards, and the trainings that store in them."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from replaylab.arguments import optional, takes, text
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay.figures import ShardFigures, figures_from

SECONDS_TO_ANSWER = 5.0
"""Seconds that a process may take to answer; it may be saving itself."""


@dataclass(frozen=True)
class ReplayStatus:
    """One replay in shards, as seen from outside.

    Attributes:
        run: The run's id.
        shards: Figures of each shard that answers; losses are known only if a training reports them.
        silent: Numbers of shards that did not answer in time.
        training: The last figures of the training that stores in it, by name; None without a training.
    """

    run: str
    shards: tuple[ShardFigures, ...]
    silent: tuple[int, ...]
    training: dict[str, Any] | None

    def lines(self) -> Iterator[str]:
        """Yield the status as text: lines for the training, the replay, and each shard."""
        run = self.training
        if run:
            yield (
                f"training {self.run[:8]}: {run['environment']}, {run['learner']}, step {run['steps']:,} of "
                f"{run['total_steps']:,} ({run['steps_per_second']:,.0f} a second), {run['updates']:,} updates "
                f"({run['updates_per_second']:,.0f} a second, {run['skipped_updates']:,} skipped), "
                f"{run['waiting_evaluations']} evaluations waiting"
            )
            yield (
                f"  {run['actors']} actors, {run['silent_actors']} silent, {run['actor_losses']} lost; "
                f"{run['lost_actor_steps']:,} steps lost; {run['granted_steps']:,} steps under way; weights "
                f"{run['weights_age']:,.0f} updates old, priorities {run['replay']['priority_age']:,.0f}; waiting: "
                f"actors {run['actors_wait']:.0%} of the time, learner {run['learner_waits']:.0%}"
            )
        size = sum(shard.size for shard in self.shards)
        line = f"replay {self.run[:8]}: {len(self.shards)} shards, {size:,} steps stored now"
        if run:
            replay = run["replay"]
            line += (
                f", {replay['added']:,} so far, {replay['samples']:,} rows drawn "
                f"({replay['samples_per_insert']:.2f} a step), {replay['losses']} shards lost with "
                f"{replay['lost_steps']:,} steps, {replay['stale_updates']:,} stale updates"
            )
        yield line
        for shard in self.shards:
            lost = "" if shard.losses is None else f"lost {shard.losses} times with {shard.lost_steps:,} steps, "
            error = "" if shard.snapshot_error is None else f", snapshots fail ({shard.snapshot_error})"
            yield (
                f"  shard {shard.number}: epoch {shard.epoch}, {shard.size:,} steps, total {shard.total:.6g}, "
                f"{shard.adds_per_second:,.0f} adds and {shard.draws_per_second:,.0f} draws a "
                f"second, {lost}{shard.nbytes / 2**20:,.1f} MiB on node {shard.node[:8]}{error}"
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
        from replaylab.distributed.replay.calls import named_actors  # imports Ray

        return [_status(run, names) for run, names in sorted(named_actors().items())]


def _status(run: str, names: list[str]) -> ReplayStatus:
    from replaylab.distributed.training.actor_pool import HUB

    parts = {name: "read" if name == HUB else "figures" for name in names if name == HUB or name.isdigit()}
    answers = _answers(run, parts)
    training = answers.pop(HUB, None) or None
    lost = {shard["number"]: shard for shard in training["replay"]["shards"]} if training else {}
    shards = []
    for number, answer in sorted((int(name), answer) for name, answer in answers.items()):
        known = {name: lost.get(number, {}).get(name) for name in ("losses", "lost_steps")}
        shards.append(figures_from(number, answer, **known))
    silent = sorted(int(name) for name in parts if name != HUB and name not in answers)
    return ReplayStatus(run, tuple(shards), tuple(silent), training)


def _answers(run: str, parts: dict[str, str]) -> dict[str, Any]:
    """Call a method of each part of a run, and return the answers that arrive in time."""
    from replaylab.distributed.replay.calls import client_of
    from replaylab.distributed.replay.shard import ActorLost

    pendings, answers = {}, {}
    for name, method in parts.items():
        client = client_of(run, name)
        if client is not None:
            pendings[name] = client.call(method)
    until = monotonic() + SECONDS_TO_ANSWER
    while pendings and monotonic() < until:
        for name in [name for name, pending in pendings.items() if pending.ready()]:
            try:
                answers[name] = pendings.pop(name).result()
            except ActorLost:  # it has died since
                continue
        sleep(0.01)
    return answers
