"""The status of a cluster: its replays in shards, and the trainings that store in them."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from time import monotonic, sleep
from typing import Any

from replaylab.arguments import optional, takes, text
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay.figures import ShardFigures
from replaylab.number_format import decimals

SECONDS_TO_ANSWER = 5.0
"""Seconds that a process may take to answer; it may be saving itself."""


@dataclass(frozen=True)
class ReplayStatus:
    """One replay in shards, as seen from outside.

    Attributes:
        run: The run's id.
        shards: Figures of each shard that answers; lost steps are known only if a training reports them.
        silent: Numbers of shards that did not answer in time.
        training: The last figures of the training that stores in it, by name; None without a training.
    """

    run: str
    shards: tuple[ShardFigures, ...]
    silent: tuple[int, ...]
    training: dict[str, Any] | None

    def lines(self) -> Iterator[str]:
        """Yield the figures as text: lines for the training, the replay, and each shard."""
        training = dict(self.training or {})
        replay = training.pop("replay", {"size": sum(shard.size for shard in self.shards)})
        if training:
            yield f"training {self.run[:8]}: {_text(training)}"
        yield f"replay {self.run[:8]}: {_text(replay)}"
        for shard in self.shards:
            yield f"  shard {_text(asdict(shard))}"
        for number in self.silent:
            yield f"  shard number {number}: no answer within {SECONDS_TO_ANSWER:.0f} seconds"


def _text(figures: dict[str, Any]) -> str:
    """Return the numbers and texts among figures by name as text."""
    texts = []
    for name, value in figures.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            shown = decimals(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
            texts.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(texts)


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
    """Ask the hub and the shards among the actors of a run."""
    from replaylab.distributed.replay.calls import client_of
    from replaylab.distributed.replay.shard import ActorLost
    from replaylab.distributed.training.hub import HUB

    parts = [name for name in names if name == HUB or name.isdigit()]
    clients = {name: client for name in parts if (client := client_of(run, name)) is not None}
    pendings = {name: client.call("read" if name == HUB else "figures") for name, client in clients.items()}
    answers, until = dict[str, Any](), monotonic() + SECONDS_TO_ANSWER
    while pendings and monotonic() < until:
        for name in [name for name, pending in pendings.items() if pending.ready()]:
            with suppress(ActorLost):  # it has died since
                answers[name] = pendings.pop(name).result()
        sleep(0.01)
    training = answers.pop(HUB, None) or None
    lost = {shard["number"]: shard["lost_steps"] for shard in training["replay"]["shards"]} if training else {}
    shards = []
    for number, (figures, _) in sorted((int(name), answer) for name, answer in answers.items()):
        shards.append(replace(figures, lost_steps=lost.get(number)))
    silent = sorted(int(name) for name in parts if name != HUB and name not in answers)
    return ReplayStatus(run, tuple(shards), tuple(silent), training)
