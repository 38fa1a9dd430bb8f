"""``replaylab cluster status``."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from replaylab.commands.places import check_place

with suppress(ModuleNotFoundError):  # `main` says that the lab extra is missing
    from tyro.conf import Positional, arg


@dataclass(frozen=True)
class ClusterCommand:
    """Show what runs in a Ray cluster: trainings with actors, and every replay in shards, shard by shard.

    Example: replaylab cluster status

    Example: replaylab cluster status --address head:6379 --json status.json
    """

    what: Annotated[Positional[Literal["status"]], arg(metavar="status")]
    """Show sizes, totals, rates, epochs, and losses so far."""

    address: str = "auto"
    """HOST:PORT of the cluster; auto: the one that runs on this machine."""

    json: Path | None = None
    """Write all that is known to this file as well, as JSON."""

    def __call__(self) -> int:
        """Print the lines and return the exit code."""
        from replaylab.distributed import cluster_status

        check_place("cluster", "json", self.json, is_file=True)
        statuses = cluster_status(self.address)
        for status in statuses:
            for line in status.lines():
                print(line)
        if not statuses:
            print("no replay in shards runs in this cluster")
        if self.json is not None:
            text = json.dumps([asdict(status) for status in statuses])
            figures = json.loads(text, parse_constant=lambda _: None)  # those that are not there yet, NaN, become null
            self.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
        return 0
