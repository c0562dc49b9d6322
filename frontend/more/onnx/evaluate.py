"""Evaluating: the steps of a block one after another, lazily, on values.

In       a Block, values by name
Out      the values of its outputs; what was read on the host on the way
Changes  device memory for constants when they are first used
Next     table.py (operators), host.py (arithmetic with shapes), model.py (who calls)

Nothing runs on the device here unless an operator needs the numbers of something that is computed: what comes out
is lazy.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from typing import Any

import numpy as np

from hcq.frontend.core import device as devices
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx import host
from hcq.frontend.more.onnx.graph import Block, Step
from hcq.frontend.more.onnx.values import Value, of_array, of_tensor, put
from hcq.frontend.more.onnx.weights import bits_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType

# a Value, a list of them for a sequence, None for an optional that is empty
Values = MutableMapping[str, Any]
MAX_KEPT = 1 << 22  # bytes of constants kept for the next call
MAX_TURNS = 100_000  # of all loops of a model in one call


# what Python and NumPy raise for shapes and numbers that an operator does not take
_NO_FIT = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, MemoryError)


class Run:
    """One evaluation, and what it noticed.

    reads     inputs of the model whose numbers were needed on the host
    depends   steps that needed numbers of what is computed: such a call is not recorded
    uploads   constants by their content, shared by all calls of a model
    turns     how many times graphs within the graph have run
    """

    def __init__(self, device: str, uploads: dict[Any, Tensor]):
        self.device = device
        self.uploads = uploads
        self.reads: set[str] = set()
        self.depends: list[str] = []
        self.is_random = False
        self.shapes: dict[str, Any] = {}  # of every value, for who shows a graph
        self.step: Step | None = None
        self.turns = 0

    def turn(self, block: Block, inputs: dict[str, Any], around: Values) -> list[Any]:
        """The outputs of a graph within the graph. Raises UsageError when there were too many turns of them."""
        self.may_turn(1)
        self.turns += 1
        return self.block(block, inputs, around)

    def may_turn(self, count: int) -> None:
        """Refuses so many further turns where they are too many."""
        if self.turns + count > MAX_TURNS:
            made = (
                f"{self.turns:,} turns of the model's loops were made"
                if self.turns
                else "no turn was made yet"
            )
            raise UsageError(
                f"{made} and {count:,} more are wanted; in one call there are at most {MAX_TURNS:,}"
            )

    def block(self, block: Block, inputs: dict[str, Any], around: Values | None = None) -> list[Any]:
        """The outputs of a block."""
        mine: Values = {**block.constants, **inputs}
        values: Values = ChainMap(mine, around) if around is not None else mine  # type: ignore[arg-type]
        for step in block.steps:
            self.step = step
            for name, value in zip(step.outputs, self.outputs(step, values)):
                if name:
                    mine[name] = value
                    self.shapes[name] = value
        return [values[info.name] for info in block.outputs]

    def outputs(self, step: Step, values: Values) -> list[Any]:
        """What a step gives. Raises UsageError that names its node."""
        given = [values[name] if name else None for name in step.inputs]
        form = step.implementation
        call = Call(self, step, values, given)
        try:
            found: Any = None
            if form.is_raw:
                found = form.function(*given, **call.attributes())
            else:
                on_host = host.find(step)
                if on_host is not None and _are_small(given):
                    with np.errstate(all="ignore"):
                        found = on_host(*[value and value.array() for value in given], **step.attributes)
                if found is None:
                    found = form.function(*call.arguments(), **call.attributes())
        except UsageError as error:
            if str(error).startswith("[OnnxModel]"):
                raise
            raise UsageError(f"[OnnxModel] {step}: {error}") from error
        except _NO_FIT as error:
            shapes = ", ".join(shown(value) for value in given)
            raise UsageError(
                f"[OnnxModel] {step}: inputs {shapes} do not fit: {error or type(error).__name__}."
            ) from error
        many = found if isinstance(found, tuple) else (found,)
        if len(many) < sum(1 for name in step.outputs if name):
            raise UsageError(
                f"[OnnxModel] {step}: {len(step.outputs)} outputs are used, and it gives {len(many)}."
            )
        return [self.value(each) for each in many]

    def value(self, found: Any) -> Any:
        """What an operator gave, as a value."""
        if isinstance(found, Tensor):
            return of_tensor(found)
        if isinstance(found, (np.ndarray, np.generic)):
            return of_array(found)
        return found  # a Value; a sequence; nothing

    def tensor(self, value: Value) -> Tensor:
        """A value on the device."""
        return value.tensor(self.upload)

    def upload(self, array: np.ndarray[Any, Any], dtype: DType) -> Tensor:
        """Numbers on the device; the same numbers are there once."""
        if array.nbytes > MAX_KEPT:
            return put(array, dtype, self.device)
        key = (dtype, array.shape, array.tobytes())
        found = self.uploads.get(key)
        if found is None:
            found = self.uploads[key] = put(array, dtype, self.device)
        return found

    def numbers(self, value: Value) -> np.ndarray[Any, Any]:
        """A value's numbers on the host; noted where they are not known before the run."""
        if not value.is_known:
            if value.origin:
                self.reads.add(value.origin)
            else:
                self.depends.append(str(self.step))
        array = value.array()
        if array.dtype.name == value.dtype.name:
            return array
        return np.asarray(self.tensor(value).float().numpy())  # what NumPy lacks, as float32


class Call:
    """A step with its inputs, for the function that computes it.

    device          where tensors are made
    number, tensor  give the numbers of a raw value, and it on the device
    version, count  the model's version of the operator set, and how many outputs the node names
    """

    def __init__(self, run: Run, step: Step, values: Values, given: list[Any]):
        self.run, self.step, self.values, self.given = run, step, values, given
        self.device, self.number, self.tensor = run.device, run.numbers, run.tensor
        self.version, self.count = step.version, len(step.outputs)

    @property
    def has_float64(self) -> bool:
        """Whether the device computes float64."""
        return devices.target(devices.members(self.run.device)[0]).has_float64

    def wants(self, place: int) -> bool:
        """Whether an output is used."""
        return place < self.count and bool(self.step.outputs[place])

    def constant(self, array: Any, dtype: DType | None = None) -> Tensor:
        """Numbers on the device, there once for all calls."""
        value = of_array(np.asarray(array), dtype)
        return self.run.upload(value.array(), value.dtype)

    def arguments(self) -> list[Any]:
        """Inputs as the function takes them."""
        form = self.step.implementation
        found: list[Any] = []
        for place, value in enumerate(self.given):
            name = form.takes[place] if place < len(form.takes) else ""
            if value is None:
                if place < form.needed:
                    raise UsageError(
                        f"[OnnxModel] {self.step}: input {place} ({name or 'one of many'}) is left out."
                    )
                found.append(None)
            elif not isinstance(value, Value):
                raise UsageError(f"[OnnxModel] {self.step}: input {place} is a sequence; it takes a tensor.")
            else:
                found.append(self.run.numbers(value) if name in form.host else self.run.tensor(value))
        return found

    def attributes(self) -> dict[str, Any]:
        """Attributes as the function takes them."""
        return (
            {**self.step.attributes, "call": self}
            if self.step.implementation.wants_call
            else self.step.attributes
        )


def shown(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, Value):
        return f"{value.dtype.name}{list(value.shape)}"
    return "nothing" if value is None else f"a sequence of {len(value)}"


def _are_small(given: list[Any]) -> bool:
    """Whether all inputs are known and of shapes' size."""
    return all(
        value is None
        or (
            isinstance(value, Value)
            and value.is_known
            and value.size <= host.MAX_HOST
            and bits_of(value.dtype).name == value.dtype.name
        )
        for value in given
    )
