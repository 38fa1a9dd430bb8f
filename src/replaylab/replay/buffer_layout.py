"""The layout of a buffer's steps and batches, which depends only on its options."""

from collections.abc import Callable, Iterator
from typing import Any

from replaylab import _core
from replaylab.machine import machine_memory
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.data.arrays import refuse, steps_of, writable, write_error
from replaylab.replay.data.autoreset import with_final_obs
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import Field
from replaylab.replay.data.schedules import Schedules
from replaylab.replay.transforms import FrameStack, Hindsight, NStep, Sequence
from replaylab.replay.transforms.frame_stack import check_first_stacks
from replaylab.replay.transforms.hindsight import of_outcome
from replaylab.trees import flatten_as, unflatten


class BufferLayout:
    """The shapes of a buffer's steps and batches, and the scheduled numbers of its sampler.

    Attributes:
        flat: The fields by path, as they are stored.
        input_fields: The fields by path, as `add` takes them: stacks, if the buffer stores single frames of them.
        nested: Whether a field is declared as a mapping or tuple.
        n_step, stack, hindsight, sequence: The transforms, by kind, each or None.
        plain_batches: Whether the core's columns are the batch.
        batch_row_nbytes: Bytes of one row of a batch, at most.
        usual_batch: Batches up to this size fit into memory for certain.
        reshapes: Whether the core's columns and the batch differ in shape, so that the core cannot write into a batch.
        stride: Steps between the starts of neighboring sequences; None without `Sequence`.
        capacity, num_envs, replicas, min_size: As in the configuration.
        schedules: The sampler's scheduled numbers.
    """

    def __init__(self, config: BufferConfig) -> None:
        self._config = config
        self.flat, self._fields = config.flat, config.fields
        self.capacity, self.num_envs, self.replicas = config.capacity, config.num_envs, config.replicas
        self.min_size, self._autoreset = config.min_size, config.autoreset
        self.nested = any(name not in self.flat for name in self._fields)
        self._paths = self.unflatten(iter(self.flat))
        self.n_step, self.stack = config.transform(NStep), config.transform(FrameStack)
        self.hindsight, self.sequence = config.transform(Hindsight), config.transform(Sequence)
        self._outcome_fields = self._fields_of_outcome()
        self.plain_batches = self.hindsight is None and not self.nested
        self.reshapes = self.hindsight is not None and self.n_step is not None
        self.stride = self.sequence.length - self.sequence.overlap if self.sequence else None
        self.batch_row_nbytes = self._batch_row_nbytes()
        self.usual_batch = min(2**20, machine_memory() // (self.batch_row_nbytes * (config.replicas or 1)))
        self.input_fields = self._fields_of_input()
        self._writable = writable(self.flat, config.sampler.clock_fields)
        name = type(config.sampler).__name__
        self.schedules = Schedules(name, config.sampler.schedules, replicas=config.replicas)

    @property
    def plain(self) -> bool:
        """Whether the arguments of `add` can be passed to the core unchanged."""
        return not self.nested and self.input_fields is self.flat and self._autoreset != "same_step"

    def steps(
        self, core: _core.Replay, steps: dict[str, Any], final_obs: Any, where: Any, *, many: bool
    ) -> tuple[dict[str, Any], int]:
        """Return the flat values to store for one call of `add` or `extend`, and the number of time steps.

        Raises:
            FieldError: A field or `final_obs` is missing or unknown.
            ShapeError, DtypeError: A value breaks the axis rule or does not fit the field's dtype.
        """
        values = dict(flatten_as(self._fields, steps)) if self.nested else steps
        if values.keys() != self.flat.keys() or (final_obs is not None and self._autoreset != "same_step"):
            refuse("extend" if many else "add", values | {"final_obs": final_obs}, tuple(self.flat))
        first = next(iter(self.flat))
        length = steps_of(first, values[first], 0 if self.replicas is None else 1) if many else None
        leading = (self.replicas, length, self.num_envs)
        if self._autoreset == "same_step":
            values = with_final_obs(values, final_obs, where, self.input_fields, leading)
        if self.stack is not None and self.input_fields is not self.flat:
            resets_left_out = self._autoreset == "next_step"
            check_first_stacks(
                self.stack, values, where, self.input_fields, leading, core.next_steps(), resets_left_out
            )
            axis = sum(n is not None for n in leading)
            values = {
                path: value if self.input_fields[path] == self.flat[path] else self.stack.newest(path, value, axis)
                for path, value in values.items()
            }
        return values, length if length is not None else 1

    def written(self, steps: dict[str, Any]) -> dict[str, Any]:
        """Return the flat values of one call of `write`.

        Raises:
            FieldError: A field is unknown or cannot be changed, or there is none.
        """
        values = dict(flatten_as(self._fields, steps)) if self.nested else steps
        if not values or not values.keys() <= self._writable:
            raise write_error(values, tuple(self.flat), self._config.sampler.clock_fields)
        return values

    def relabel(self, columns: dict[str, Any]) -> None:
        """Recompute the columns that depend on the goal, in place, if the buffer has a `Hindsight` transform."""
        if self.hindsight is None:
            return
        self.hindsight.recompute(columns, self._outcome_fields, self.n_step)

    def _batch_row_nbytes(self) -> int:
        """Return an upper limit of the bytes of one row of a batch."""
        stacked = self.stack.leaves(self.flat) if self.stack else []
        frames = {path: self.stack.length if self.stack and path in stacked else 1 for path in self.flat}
        steps = self.sequence.burn_in + self.sequence.length if self.sequence else 1
        inner = self.n_step.steps if self.n_step and self.hindsight else 1
        step_nbytes = sum(field.nbytes * frames[path] for path, field in self.flat.items())
        return step_nbytes * steps * inner + 20 + 13 * steps  # weight, probability, id; discount, n_steps, mask

    def batch(self, columns: dict[str, Any]) -> Batch:
        """Return flat columns as a batch, nested as the fields are."""
        if not self.nested:
            return Batch(columns)
        return Batch(_at_paths(self._paths, columns.pop) | columns)

    def unflatten(self, leaves: Iterator[Any]) -> dict[str, Any]:
        """Return one value for every flat field, nested as the fields are."""
        nested: dict[str, Any] = unflatten(self._fields, leaves)
        return nested

    def _fields_of_outcome(self) -> list[str]:
        """Return the paths of the fields that a batch holds for every step whose outcome is recomputed."""
        states = self.sequence.state if self.sequence else ()
        paths = [path for path in self.flat if not any(path == s or path.startswith(f"{s}.") for s in states)]
        if self.n_step is None:
            return paths
        stacked = self.stack.leaves(self.flat) if self.stack else []
        return [p for p in paths if of_outcome(p) or (p.split(".")[0] != "obs" and p not in stacked)]

    def _fields_of_input(self) -> dict[str, Field]:
        """Return the fields as `add` takes them: stacks, if the buffer stores single frames of them."""
        if self.stack is None or not self.stack.stacked_input:
            return self.flat
        stacked = dict.fromkeys(self.stack.leaves(self.flat))
        return {
            path: Field((self.stack.length, *field.shape), field.dtype) if path in stacked else field
            for path, field in self.flat.items()
        }


def _at_paths(paths: Any, value: Callable[[str], Any]) -> Any:
    """Return the values of paths in their structure, faster than `unflatten`: batches are many."""
    kind = type(paths)
    if kind is str:
        return value(paths)
    if kind is tuple:
        return tuple([_at_paths(child, value) for child in paths])
    return {key: _at_paths(child, value) for key, child in paths.items()}
