"""How a buffer shows itself: one line of text, and a table for notebooks."""

from html import escape

import numpy as np

from replaylab.replay.data.fields import Field, flatten
from replaylab.replay.data.memory import size_text
from replaylab.replay.introspection.introspective import Introspective
from replaylab.replay.storage.retention import Fifo

STYLE = (
    "font:13px/1.5 system-ui,sans-serif;color:inherit;display:inline-block;max-width:60em;padding:10px 14px;"
    "border:1px solid rgba(128,128,128,.4);border-radius:8px"
)
CELL = "text-align:left;vertical-align:top;padding:1px 18px 1px 0;background:none;border:0;color:inherit"
DIM = "opacity:.65"


def text(buffer: Introspective) -> str:
    """Return a buffer in one line."""
    axes = [f"{n} {name}" for n, name in ((buffer.replicas, "replicas"), (buffer.num_envs, "envs")) if n]
    parts = [f"{_stored(buffer)} of {buffer.capacity:,} steps", *axes, size_text(buffer.nbytes), repr(buffer.sampler)]
    parts += [f"{name}: {value}" for name, value in _options(buffer).items()]
    return f"ReplayBuffer({', '.join(parts)}, fields: {', '.join(path for path, _ in _leaves(buffer))})"


def html(buffer: Introspective) -> str:
    """Return a buffer as a self-contained table in its page's own colours."""
    share = 100.0 * float(np.mean(buffer.size)) / buffer.capacity
    bar = (
        '<div style="height:6px;margin:6px 0 8px;border-radius:3px;background:rgba(128,128,128,.25)">'
        f'<div style="height:6px;border-radius:3px;background:#3b82f6;width:{share:.1f}%"></div></div>'
    )
    derived = buffer.next_obs == "derived"
    rows = [("field", "shape", "dtype", "bytes a step")]
    for path, field in _leaves(buffer):
        free = derived and path.split(".")[0] == "next_obs"
        rows.append((path, str(field.shape), str(field.dtype), "derived" if free else f"{field.nbytes:,}"))
    facts = {"sampler": repr(buffer.sampler), **_options(buffer)}
    facts |= {name: str(n) for name, n in (("replicas", buffer.replicas), ("environments", buffer.num_envs)) if n}
    each = buffer.nbytes / (buffer.capacity * (buffer.replicas or 1))
    facts["memory"] = f"{size_text(buffer.nbytes)}, {each:,.0f} bytes a step"
    return (
        f'<div style="{STYLE}"><div><b>ReplayBuffer</b> '
        f"{_stored(buffer)} of {buffer.capacity:,} steps ({share:.0f}&nbsp;%)</div>{bar}"
        f"{_table([_row(row, 'th' if i == 0 else 'td') for i, row in enumerate(rows)])}"
        '<div style="height:8px"></div>'
        f"{_table([_row(fact, 'td', dim_first=True) for fact in facts.items()])}</div>"
    )


def _table(rows: list[str]) -> str:
    return f'<table style="border-collapse:collapse;margin:0;font:inherit;color:inherit">{"".join(rows)}</table>'


def _row(cells: tuple[str, ...], tag: str, dim_first: bool = False) -> str:
    dim = [tag == "th" or (dim_first and i == 0) for i in range(len(cells))]
    made = (
        f'<{tag} style="{CELL}{";font-weight:normal" if tag == "th" else ""}{";" + DIM if faint else ""}">'
        f"{escape(cell)}</{tag}>"
        for cell, faint in zip(cells, dim, strict=True)
    )
    return f'<tr style="background:none">{"".join(made)}</tr>'


def _leaves(buffer: Introspective) -> list[tuple[str, Field]]:
    return list(flatten(buffer.fields))


def _options(buffer: Introspective) -> dict[str, str]:
    """Return the options other than the sampler that differ from their defaults."""
    options = {}
    if buffer.transforms:
        options["transforms"] = ", ".join(map(repr, buffer.transforms))
    if not isinstance(buffer.retention, Fifo):
        options["retention"] = repr(buffer.retention)
    if buffer.autoreset is not None:
        options["autoreset"] = buffer.autoreset
    if buffer.next_obs == "derived":
        options["next_obs"] = "derived"
    return options


def _stored(buffer: Introspective) -> str:
    sizes = np.unique(buffer.size)
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
