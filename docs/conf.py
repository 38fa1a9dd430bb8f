"""Settings of Sphinx for `make docs`."""

import enum
import inspect
import os
import re
import sys

from numpy.typing import ArrayLike
from sphinx.domains.python import PyObject
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import stringify_annotation

import replaylab
from replaylab import replay, research
from replaylab.learners.metrics import METRICS

project = "replaylab"
author = "the replaylab developers"
release = version = replaylab.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

# The tutorials are executed when they are read, each in an empty folder; a cell that fails is an error of the build.
nb_execution_mode = "auto"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 120
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pictures of environments need no screen
nb_merge_streams = True

default_role = "literal"

autodoc_member_order = "bysource"
toc_object_entries = False  # pages of the reference have a heading for each class
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False

# No network while building, so types of other packages are named, not linked; nor are those that are not public.
UNLINKED = (
    r"(?!replaylab\.).*",
    r"replaylab\._core.*",
    r"replaylab\.(plotting|replay|learners|study|distributed|torch\.captured)\..*",
)
nitpick_ignore_regex = [("py:.*", name) for name in UNLINKED]

WHEN = {
    "episode": "each episode",
    "evaluation": "each evaluation",
    "update": "update",
    "end": "end",
    "listeners": "only for hooks and TensorBoard",
}

LONG = {stringify_annotation(ArrayLike, "smart"): "ArrayLike", stringify_annotation(ArrayLike): "ArrayLike"}

html_theme = "furo"
html_title = "replaylab"
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["pages.css"]
pygments_style = "friendly"
pygments_dark_style = "monokai"


def bars(app, what, name, obj, options, lines):  # noqa: ARG001
    """Escape bars outside of code: in a docstring they are |absolute values|, in reStructuredText substitutions."""
    code = re.compile(r"(``.*?``|`.*?`|\\\|)")
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = "".join(part if k % 2 else part.replace("|", r"\|") for k, part in enumerate(code.split(line)))


def short_types(app, what, name, obj, options, signature, returns):  # noqa: ARG001
    """Shorten NumPy's types, and show the values of defaults that are named constants."""

    def shorten(text):
        for long, short in LONG.items():
            text = text.replace(long, short)
        array = r"~numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[~numpy\.(\w+)\]\]"
        return re.sub(array, r"NDArray[\1]", text)

    def value(match):
        default = eval(match[1], dict(vars(sys.modules[inspect.unwrap(obj).__module__])))
        return match[0] if callable(default) or isinstance(default, enum.Enum) else f"= {default!r}"

    if signature:
        signature = re.sub(r"= ([A-Za-z_]\w*\.\w+|[A-Z][A-Z_]+)(?=[,)])", value, signature.replace("<factory>", "{}"))
    return (signature and shorten(signature), returns and shorten(returns))


def every_sampler(app, docname, source):  # noqa: ARG001
    """Document samplers without a section in place of the line ``.. samplers`` or ``.. research samplers``."""
    for line, package in ((".. samplers\n", replay), (".. research samplers\n", research)):
        kinds = {name: getattr(package, name) for name in package.__all__}
        samplers = [name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, replay.Sampler)]
        entries = (f".. autoclass:: {name}\n" for name in samplers if f".. autoclass:: {name}\n" not in source[0])
        source[0] = source[0].replace(line, "\n".join(entries))


class MetricTable(SphinxDirective):
    """The registry's metrics as a table: those of every run ("training") or those of batches ("measures")."""

    required_arguments = 1

    def run(self):
        """Return the table's nodes."""
        if self.arguments[0] == "measures":
            rows = [("metric", "what", "unit", "uniform", "source")]
            measures = (metric for metric in METRICS if metric.when == "measures")
            rows += [(f"`{m.name}`", m.definition or m.meaning, m.unit, m.uniform, m.source or "–") for m in measures]
        else:
            rows = [("metric", "when", "unit", "what")]
            recorded = (metric for metric in METRICS if metric.when != "measures")
            rows += [
                (f"`{m.name}`", WHEN[m.when] + (f", with `{m.needs}`" if m.needs else ""), m.unit, m.meaning)
                for m in recorded
            ]
        rows.insert(1, ("---",) * len(rows[0]))
        lines = ((cell.replace("|", r"\|") for cell in row) for row in rows)
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def setup(app):
    """Register the above."""
    next(field for field in PyObject.doc_field_types if field.name == "variable").label = "Attributes"
    app.add_directive("metrics", MetricTable)
    app.connect("source-read", every_sampler)
    app.connect("autodoc-process-docstring", bars)
    app.connect("autodoc-process-signature", short_types)
