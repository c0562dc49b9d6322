"""OnnxModel: a file of ONNX as a function of tensors by name.

In       a path or bytes; then inputs by name: tensors, arrays, numbers
Out      outputs by name, as tensors
Changes  device memory: weights when they are first used; recordings of calls that were made before
Next     graph.py (what is checked at load), evaluate.py (how a graph runs), frontend/jit/ (recordings)

    model = OnnxModel("resnet.onnx")
    model.inputs                                  # [Port(name='image', shape=('batch', 3, 224, 224), dtype=float32)]
    scores = model(image=x)["scores"]

The first call with some shapes runs operator by operator, lazily; from the second one on the call goes through jit
and is one submission, where nothing computed is needed on the host and no random numbers are drawn.
`model.why_not_recorded` says else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hcq.frontend.core import device as devices
from hcq.frontend.core.base import watcher
from hcq.frontend.core.errors import UsageError
from hcq.frontend.jit import jit
from hcq.frontend.more.onnx import proto, weights
from hcq.frontend.more.onnx.evaluate import Run
from hcq.frontend.more.onnx.graph import Block, Builder
from hcq.frontend.more.onnx.proto import ValueInfo
from hcq.frontend.more.onnx.values import Value, of_array, of_tensor
from hcq.frontend.more.onnx.wire import Damaged
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType

MAX_SHAPES = 16  # sets of shapes whose recordings are kept


class Port(NamedTuple):
    """An input or output. shape: None where the file does not say it; a size may be a name, or None.

    kind   "tensor", or "sequence", "optional" around one
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: DType | None
    kind: str = "tensor"


class Plan:
    """What is known of calls with the same shapes."""

    def __init__(self) -> None:
        self.reads: frozenset[str] = frozenset()  # inputs that are needed on the host
        self.recorded: dict[Any, Callable[..., Any]] = {}  # by the numbers of these
        self.why_not = ""


class OnnxModel:
    """A model: called with its inputs by name, it gives its outputs by name.

    model    a path, or the bytes of a file. External data lies beside the file
    device   where it runs; None is the default device
    Raises   UsageError, one sentence, for a file that is damaged, or asks for operators that are not known: all of them
             are named, with their nodes, before anything runs

    >>> head, node = "08083a330a140a0178120179220452656c751a0672656c755f791205", "67726170685a090a017812040a020801"
    >>> model = OnnxModel(bytes.fromhex(head + node + "62090a017912040a02080142040a001011"))
    >>> model(x=[-1.0, 2.0])["y"].tolist(), [node.op for node in model.block.steps]
    ([0.0, 2.0], ['Relu'])
    """

    def __init__(
        self, model: str | os.PathLike[str] | bytes | bytearray | memoryview, device: str | None = None
    ):
        self.device = devices.canonical(device)
        if isinstance(model, (bytes, bytearray, memoryview)):
            self.name, folder = "bytes", None
            data = memoryview(model).cast("B")
        elif isinstance(model, (str, os.PathLike)):
            path = Path(model)
            self.name, folder = os.fspath(path), path.parent
            try:
                data = weights.map_file(path)
            except UsageError:
                raise
            except OSError as error:
                raise UsageError(f"[OnnxModel] {path}: {error.strerror}.") from None
        else:
            raise UsageError(f"[OnnxModel] {type(model).__name__}: give a path, or the bytes of a file.")
        try:
            self.proto = proto.Reader().model(data)
            self.block: Block = Builder(self.proto, folder).build()
        except Damaged as why:
            raise UsageError(
                f"[OnnxModel] {self.name}: {why}. It is damaged, or no ONNX model that can be run here."
            ) from None
        given = {info.name for info in self.block.inputs} & set(self.block.constants)
        self.inputs = [_port(info) for info in self.block.inputs if info.name not in given]
        self.outputs = [_port(info) for info in self.block.outputs]
        self.defaults = [_port(info) for info in self.block.inputs if info.name in given]
        self.why_not_recorded = ""
        self.last_run: Run | None = None
        self._uploads: dict[Any, Tensor] = {}
        self._plans: dict[Any, Plan] = {}

    @property
    def opsets(self) -> dict[str, int]:
        """Versions of operator sets by domain; "" is ONNX's own.

        >>> relu = "08083a330a140a0178120179220452656c751a0672656c755f79120567726170685a090a017812040a020801"
        >>> relu += "62090a017912040a02080142040a001011"
        >>> model = OnnxModel(bytes.fromhex(relu))
        >>> model.opsets
        {'': 17}
        """
        return dict(self.proto.opsets)

    @property
    def weight_bytes(self) -> int:
        """How large its constants are together.

        >>> relu = "08083a330a140a0178120179220452656c751a0672656c755f79120567726170685a090a017812040a020801"
        >>> relu += "62090a017912040a02080142040a001011"
        >>> model = OnnxModel(bytes.fromhex(relu))
        >>> model.weight_bytes
        0
        """
        return sum(value.size * value.dtype.itemsize for value in self.block.constants.values())

    def __repr__(self) -> str:
        size = f"{len(self.block.steps)} nodes, {self.weight_bytes} bytes of weights"
        return f"OnnxModel({self.name}: {size}, {self.device})"

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name: tensors; lists of them for sequences, None for an optional that is empty.

        inputs   tensors, arrays, numbers or lists, by the names of `inputs`. Sequences are lists of these
        Raises   UsageError for an input that is missing, not there, or of another dtype or shape than the file says
        """
        values = self._checked(inputs)
        if watcher() is not None or any(not isinstance(value, Value) for value in values.values()):
            return self._run(values, Plan())  # part of a recording around it; sequences
        key = tuple((name, value.dtype, value.shape) for name, value in values.items())
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MAX_SHAPES:
                self._plans.pop(next(iter(self._plans)))
            plan = self._plans[key] = Plan()
            return self._run(values, plan)
        if plan.why_not:
            return self._run(values, plan)
        self.why_not_recorded = ""
        return self._replay(values, plan)

    def trace(self, **inputs: Any) -> dict[str, Any]:
        """The outputs as lazy tensors, of which no more was computed than what operators need on the host.

        >>> relu = "08083a330a140a0178120179220452656c751a0672656c755f79120567726170685a090a017812040a020801"
        >>> relu += "62090a017912040a02080142040a001011"
        >>> model = OnnxModel(bytes.fromhex(relu))
        >>> y = model.trace(x=Tensor([-1.0, 2.0]))["y"]
        >>> y.schedule()[0].launches[0].name
        'max_2'
        """
        return self._traced(self._checked(inputs), Plan())

    def _run(self, values: dict[str, Any], plan: Plan) -> dict[str, Any]:
        """Operator by operator, and all outputs together."""
        outputs = self._traced(values, plan)
        if watcher() is None:
            realize([value for value in outputs.values() if isinstance(value, Tensor)])
        return outputs

    def _traced(self, values: dict[str, Any], plan: Plan) -> dict[str, Any]:
        """Operator by operator; what was learned goes into the plan."""
        run = self.last_run = Run(self.device, self._uploads)
        found = run.block(self.block, values)
        plan.reads = frozenset(run.reads)
        if run.depends:
            plan.why_not = f"numbers of what is computed are needed on the host: {run.depends[0]}"
        elif run.is_random:
            plan.why_not = "random numbers are drawn"
        elif any(not isinstance(value, Value) for value in found):
            plan.why_not = "an output is no tensor"
        self.why_not_recorded = plan.why_not
        return {info.name: _outside(run, value) for info, value in zip(self.block.outputs, found)}

    def _replay(self, values: dict[str, Any], plan: Plan) -> dict[str, Any]:
        """By a recording, one for each set of numbers that are needed on the host."""
        run = Run(self.device, self._uploads)
        fixed = {name: values[name].array() for name in sorted(plan.reads)}
        key = tuple((name, array.tobytes()) for name, array in fixed.items())
        names = [name for name in values if name not in fixed]
        recorded = plan.recorded.get(key)
        if recorded is None:
            if len(plan.recorded) >= MAX_SHAPES:
                plan.recorded.pop(next(iter(plan.recorded)))
            constants = {
                name: Value(values[name].dtype, array.shape, array=array) for name, array in fixed.items()
            }

            def call(*tensors: Tensor) -> list[Tensor]:
                again = Run(self.device, self._uploads)
                found = again.block(self.block, {**constants, **dict(zip(names, map(of_tensor, tensors)))})
                return [again.tensor(value) for value in found]

            recorded = plan.recorded[key] = jit(call)
        try:
            tensors = recorded(*[run.tensor(values[name]) for name in names])
        except UsageError as error:
            if "recording" not in str(error):
                raise
            plan.why_not = str(error)
            return self._run(values, plan)
        return {info.name: tensor for info, tensor in zip(self.block.outputs, tensors)}

    def _checked(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Inputs as values, in the order of the file."""
        known = {port.name: port for port in (*self.inputs, *self.defaults)}
        for name in inputs:
            if name not in known:
                raise UsageError(
                    f"[OnnxModel] {name!r} is no input of {self.name}. Inputs: {', '.join(known)}."
                )
        missing = [port.name for port in self.inputs if port.name not in inputs and port.kind != "optional"]
        if missing:
            raise UsageError(
                f"[OnnxModel] {self.name} needs {', '.join(missing)}, too: model({missing[0]}=...)."
            )
        sizes: dict[str, tuple[int, str]] = {}
        return {
            name: self._inside(inputs.get(name), port, sizes) for name, port in known.items()
            if name in inputs or port.kind == "optional"
        }  # fmt: skip

    def _inside(self, given: Any, port: Port, sizes: dict[str, tuple[int, str]]) -> Any:
        """One input as a value, checked against what the file says of it."""
        if port.kind.startswith("optional") and given is None:
            return None
        if "sequence" in port.kind:
            if not isinstance(given, (list, tuple)):
                raise UsageError(f"[OnnxModel] {port.name}: it is a sequence. Give a list of tensors.")
            one = port._replace(kind="tensor", shape=None)
            return [self._inside(each, one, sizes) for each in given]
        if isinstance(given, Tensor):
            value = of_tensor(given.to(self.device), port.name)
        else:
            array = np.asarray(given)
            if port.dtype is not None and array.dtype.name != port.dtype.name and not hasattr(given, "dtype"):
                # Python's numbers have no dtype of their own
                array = array.astype(weights.bits_of(port.dtype))
            value = of_array(array, origin=port.name)
        if port.dtype is not None and value.dtype is not port.dtype:
            raise UsageError(
                f"[OnnxModel] {port.name} is {value.dtype.name}, and the model takes {port.dtype.name}. Cast it first."
            )
        if port.shape is not None:
            self._fits(value, port, sizes)
        return value

    def _fits(self, value: Value, port: Port, sizes: dict[str, tuple[int, str]]) -> None:
        """Refuse a shape that is not the file's. A name stands for one size in all inputs."""
        assert port.shape is not None
        wrong = len(value.shape) != len(port.shape)
        for want, have in zip(port.shape, value.shape):
            if isinstance(want, int):
                wrong = wrong or want != have
            elif want is not None:
                size, where = sizes.setdefault(want, (have, port.name))
                if size != have:
                    raise UsageError(
                        f"[OnnxModel] {port.name} has shape {value.shape}, so that {want!r} is {have}; "
                        f"in {where} it is {size}. Give inputs that agree."
                    )
        if wrong:
            shape = ", ".join(str(size if size is not None else "?") for size in port.shape)
            raise UsageError(
                f"[OnnxModel] {port.name} has shape {value.shape}, and the model takes ({shape})."
            )


def _outside(run: Run, value: Any) -> Any:
    """A value for who called."""
    if isinstance(value, list):
        return [_outside(run, each) for each in value]
    return None if value is None else run.tensor(value)


def _port(info: ValueInfo) -> Port:
    return Port(info.name, info.shape, weights.DTYPES.get(info.kind), " ".join(info.around) or "tensor")
