"""What the compiled core needs to know of a buffer's transforms, and what its fields must be for them."""

from collections.abc import Sequence as ListOf

from replaylab import _core
from replaylab.errors import ConfigError, FieldError
from replaylab.replay.transforms.transform import OUTCOME, Fields, Transform


def transform_config(transforms: ListOf[Transform], fields: Fields, derived: bool) -> _core.TransformConfig:
    """Return what the core needs to know of the transforms and of where next_obs comes from.

    Raises:
        ConfigError: Something other than a transform is given, or two of one kind.
        FieldError: A field that is needed is not declared so, or one that is made is declared already.
    """
    kinds = [type(one) for one in transforms]
    if not all(isinstance(one, Transform) for one in transforms) or len(set(kinds)) < len(kinds):
        raise ConfigError(f"`transforms` must hold transforms, at most one of a kind, but got {list(transforms)!r}")
    paths = list(fields)
    config = _core.TransformConfig()
    config.partners = [_partner(path, fields) for path in paths]
    config.derived = derived
    for one in transforms:
        for name in one.makes:
            if name in fields:
                raise FieldError(f"{type(one).__name__} makes the column `{name}` itself; give the field another name")
        one.configure(config, fields)
    for i in config.states:
        if i in config.desired:
            raise FieldError(
                f"`{paths[i]}` cannot be a `state` of Sequence, of which a row has one, and a goal of Hindsight, of "
                "which every step has one; leave it out of `state`, naming what is inside a nested field one by one"
            )
    outcome = [i for i, path in enumerate(paths) if path in OUTCOME]
    for i in config.stacked:
        if i in (*outcome, *config.states, *config.desired, config.achieved):
            raise FieldError(
                f"FrameStack cannot stack `{paths[i]}`, which is an outcome, a goal or a recurrent state; name the "
                'fields or paths that hold frames, as in FrameStack(fields=("obs.camera",))'
            )
    if derived:
        _check_derived(fields, config)
    return config


def check_ends(fields: Fields, asks: str) -> None:
    """Raise `FieldError` unless what is declared as terminated or truncated says of each step whether it ended."""
    for path, field in fields.items():
        name = path.split(".")[0]
        if name in OUTCOME[1:] and (path != name or field.nbytes != field.dtype.itemsize or field.dtype.kind == "c"):
            raise FieldError(
                f"`{name}` must be one number a step, which ends its episode where it is not 0, since {asks} needs "
                f"episodes, but `{path}` is {field}; declare `{name}` as Field((), bool), and this under another name"
            )


def _partner(path: str, fields: Fields) -> int:
    """Return the number of the field x for next_x, −1 where there is no such field declared in the same way."""
    own = path.removeprefix("next_")
    return list(fields).index(own) if own != path and fields.get(own) == fields[path] else -1


def _check_derived(fields: Fields, config: _core.TransformConfig) -> None:
    paths = list(fields)
    after = [path for path in paths if path.split(".")[0] == "next_obs"]
    before = [path for path in paths if path.split(".")[0] == "obs"]
    if (
        not after
        or [f"next_{path}" for path in before] != after
        or any(config.partners[paths.index(p)] < 0 for p in after)
    ):
        raise FieldError(
            'next_obs="derived" needs the fields `obs` and `next_obs`, declared alike, but got '
            f"{ {path: fields[path] for path in before + after} }"
        )
