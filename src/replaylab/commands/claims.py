"""``replaylab claims``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from replaylab.commands.places import check_place
from replaylab.errors import SpecError

with suppress(ModuleNotFoundError):  # `main` reports that the lab extra is missing
    from tyro.conf import Positional, arg


@dataclass(frozen=True)
class ClaimsCommand:
    """Test published statements about experience replay: claim, source, our figure with its interval, verdict.

    Example: replaylab claims 1 6 --json claims.json

    Example: replaylab claims --all
    """

    numbers: Annotated[Positional[tuple[int, ...]], arg(metavar="NUMBER ...")] = ()
    """Numbers of the claims; none: all of them, which takes long."""

    all: bool = False
    """Measure every claim again with this code, and end with a table. What is measured stays in results/claims/CODE, so
    that the same command continues where it was stopped, and measures again where the code has changed."""

    json: Path | None = None
    """Write all that is printed to this file as well, as JSON."""

    def __call__(self) -> int:
        """Run the claims and return the exit code, which does not depend on the verdicts."""
        from functools import partial

        from replaylab.claims import chosen, reporting

        if self.all and self.numbers:
            raise SpecError("claims: --all measures every claim; leave the numbers out")
        claims = chosen(self.numbers)
        check_place("claims", "json", self.json, is_file=True)
        say = partial(print, flush=True)
        results = reporting.rerun(claims, say, Path("results", "claims")) if self.all else reporting.run(claims, say)
        if self.json is not None:
            self.json.write_text(reporting.dump(results), encoding="utf-8")
        return 0
