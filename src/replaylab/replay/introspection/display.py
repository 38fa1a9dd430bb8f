"""The text of a buffer in one line, and its table for notebooks."""

from html import escape

import numpy as np

from replaylab.machine import size_text
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.buffer_parts import BufferParts

STYLE = (
    "font:13px/1.5 system-ui,sans-serif;color:inherit;display:inline-block;max-width:60em;padding:10px 14px;"
    "border:1px solid rgba(128,128,128,.4);border-radius:8px"
)
CELL = "text-align:left;vertical-align:top;padding:1px 18px 1px 0;background:none;border:0;color:inherit"
DIM = "opacity:.65"


def text(parts: BufferParts) -> str:
    """Return a buffer in one line."""
    config = parts.config
    axes = [f"{n} {name}" for n, name in ((config.replicas, "replicas"), (config.num_envs, "envs")) if n]
    facts = [f"{_stored(parts)} of {config.capacity:,} steps", *axes, size_text(parts.nbytes), repr(config.sampler)]
    facts += [f"{name}: {value}" for name, value in _options(config).items()]
    return f"ReplayBuffer({', '.join(facts)}, fields: {', '.join(config.flat)})"


def html(parts: BufferParts) -> str:
    """Return a buffer as a self-contained table in its page's own colours."""
    config = parts.config
    share = 100.0 * float(np.mean(parts.size)) / config.capacity
    bar = (
        '<div style="height:6px;margin:6px 0 8px;border-radius:3px;background:rgba(128,128,128,.25)">'
        f'<div style="height:6px;border-radius:3px;background:#3b82f6;width:{share:.1f}%"></div></div>'
    )
    rows = [("field", "shape", "dtype", "bytes a step")]
    for path, field in config.flat.items():
        free = config.next_obs == "derived" and path.split(".")[0] == "next_obs"
        rows.append((path, str(field.shape), str(field.dtype), "derived" if free else f"{field.nbytes:,}"))
    facts = {"sampler": repr(config.sampler), **_options(config)}
    facts |= {name: str(n) for name, n in (("replicas", config.replicas), ("environments", config.num_envs)) if n}
    step_nbytes = parts.nbytes / (config.capacity * (config.replicas or 1))
    facts["memory"] = f"{size_text(parts.nbytes)}, {step_nbytes:,.0f} bytes a step"
    return (
        f'<div style="{STYLE}"><div><b>ReplayBuffer</b> '
        f"{_stored(parts)} of {config.capacity:,} steps ({share:.0f}&nbsp;%)</div>{bar}"
        f"{_table([_row(row, 'th' if i == 0 else 'td') for i, row in enumerate(rows)])}"
        '<div style="height:8px"></div>'
        f"{_table([_row(fact, 'td', dim_first=True) for fact in facts.items()])}</div>"
    )


def _table(rows: list[str]) -> str:
    return f'<table style="border-collapse:collapse;margin:0;font:inherit;color:inherit">{"".join(rows)}</table>'


def _row(cells: tuple[str, ...], tag: str, dim_first: bool = False) -> str:
    dim = [tag == "th" or (dim_first and i == 0) for i in range(len(cells))]
    cell_texts = (
        f'<{tag} style="{CELL}{";font-weight:normal" if tag == "th" else ""}{";" + DIM if faint else ""}">'
        f"{escape(cell)}</{tag}>"
        for cell, faint in zip(cells, dim, strict=True)
    )
    return f'<tr style="background:none">{"".join(cell_texts)}</tr>'


def _options(config: BufferConfig) -> dict[str, str]:
    """Return the options other than the sampler that differ from their defaults."""
    shown = {
        "transforms": ", ".join(map(repr, config.transforms)),
        "retention": repr(config.retention),
        "autoreset": config.autoreset,
        "next_obs": config.next_obs,
    }
    return {name: text for name, text in shown.items() if getattr(config, name) != getattr(BufferConfig, name)}


def _stored(parts: BufferParts) -> str:
    sizes = np.unique(parts.size)
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
