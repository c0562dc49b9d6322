"""jit: run a function of tensors once, record what it submits, and from then on submit the recording.

In       a function of tensors (and of plain values, which are part of what is recorded)
Out      the same function; from its third call on one doorbell runs all its kernels
Changes  tensors that the function assigns to are assigned to by every replay, as by every call
Next     realize.py (which tells the recording what runs), hcq/graph.py (how a recording is replayed)

The first call runs as it is, so that state the function makes for itself exists. The second runs and is recorded: its
kernels, which arguments and results they touch. Later calls write the addresses of their own arguments and of new
results into the recording and submit it. What a recording cannot mean is refused: reading a value on the host, new
host data, assigning to an argument, an argument whose memory the function overwrites by another name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from hcq import config
from hcq.errors import UsageError
from hcq.frontend import device as devices
from hcq.frontend import realize as realizing
from hcq.frontend.core import live
from hcq.frontend.plan import Plan
from hcq.frontend.storage import Storage, next_write
from hcq.frontend.tensor import Tensor
from hcq.graph import Symbol
from hcq.ir.node import Node
from hcq.ir.op import Op

P = ParamSpec("P")
R = TypeVar("R")

CHECKED_REPLAYS = 2  # with HCQ_JIT_CHECK=1: the first replays of a recording are compared with the function
MAX_RECORDINGS = 32  # of one function: each set of shapes, dtypes and plain values needs its own


class Recording:
    """What one call submitted, and how to submit it again."""

    def __init__(self, name: str, arguments: list[Storage], device: str):
        self.name = name
        self.arguments = arguments
        self.device = device
        self.ran_plans: list[tuple[Plan, list[Storage], list[Storage]]] = []
        self.made: dict[Storage, None] = {}
        self.written: dict[Storage, None] = {}
        self.results: Any = None
        self.result_storages: list[Storage] = []
        self.graph: Any = None
        self.memories: list[Any] = []
        self.named: set[Any] = set()  # the keys of arguments and results that some launch uses
        self.checks_left = CHECKED_REPLAYS if config.current().jit_check else 0

    def ran(self, plan: Plan, storages: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        """realize.py submitted a plan."""
        if plan.device != self.device:
            raise UsageError(
                f"[jit] {self.name} computes on {plan.device} and on {self.device}: a recording is of one device. "
                "Use one jit for each."
            )
        self.ran_plans.append((plan, list(storages), list(outputs)))
        for storage in outputs:
            if storage in storages:
                self.written[storage] = None
            else:
                self.made[storage] = None

    def finish(self, results: Any) -> None:
        """Check what was recorded and make the device graph of it."""
        self._refuse_written_arguments()
        self.results = results
        memories = dict.fromkeys(_memory(tensor) for tensor in _tensors(results))
        self.result_storages = [storage for storage in memories if storage in self.made]
        keys = {storage: Symbol(("argument", i)) for i, storage in enumerate(self.arguments)}
        keys.update({storage: Symbol(("result", i)) for i, storage in enumerate(self.result_storages)})
        device = devices.get(self.device)
        graph = device.graph(self.name)
        for plan, storages, outputs in self.ran_plans:
            for number, size in enumerate(plan.memory_sizes):
                if number == len(self.memories):
                    self.memories.append(device.alloc(size, f"{self.name} (temporary {number})"))
                elif self.memories[number].size_bytes < size:
                    self.memories[number] = device.alloc(size, f"{self.name} (temporary {number})")
            by_value: dict[int, Storage] = dict(enumerate(storages))
            by_value.update({value: s for value, s in zip(plan.results, outputs) if value >= len(storages)})
            for program, values, grid, block in plan.programs():
                graph.dispatch(program, [self._place(plan, v, by_value, keys) for v in values], grid, block)
        self.graph = graph

    def _place(
        self, plan: Plan, value: int, by_value: dict[int, Storage], keys: dict[Storage, Symbol]
    ) -> Any:
        """The buffer an argument is, or the key under which each replay names one."""
        if value not in by_value:
            return self.memories[plan.values[value].memory]
        storage = by_value[value]
        symbol = keys.get(storage)
        if symbol is None:
            return storage.buffer
        self.named.add(symbol.key)
        return symbol

    def _refuse_written_arguments(self) -> None:
        written = {id(storage.buffer) for storage in self.written}
        for i, storage in enumerate(self.arguments):
            if storage in self.written or id(storage.buffer) in written:
                raise UsageError(
                    f"[jit] {self.name} writes to the memory of its tensor argument {i} {storage.shape}. "
                    "Let the function reach that tensor from outside instead of as an argument, or pass x.clone()."
                )

    def replay(self, arguments: list[Storage]) -> Any:
        """Submit the recording on other arguments; new memory for what it returns."""
        written = {id(storage.buffer) for storage in self.written}
        places: dict[Any, Any] = {}
        for i, storage in enumerate(arguments):
            if id(storage.buffer) in written:
                raise UsageError(
                    f"[jit] {self.name}: tensor argument {i} {storage.shape} shares memory with a tensor that the "
                    "function assigns to. Pass x.clone()."
                )
            if ("argument", i) in self.named:
                places["argument", i] = storage.buffer
        device = devices.get(self.device)
        fresh: dict[Storage, Storage] = dict(zip(self.arguments, arguments))
        for i, storage in enumerate(self.result_storages):
            buffer = device.alloc(storage.size_bytes, f"{self.name} result {i}")
            places["result", i] = buffer
            fresh[storage] = Storage(storage.device, storage.dtype, storage.shape, buffer)
        if self.graph.commands:
            self.graph.replay(places)
        for storage in self.written:
            storage.version = next_write()
        mapping = {old.node(): new.node() for old, new in fresh.items()}
        return _mapped(self.results, lambda t: Tensor._of(t.node.substitute(mapping), t.device))

    def state(self) -> list[bytes]:
        """The contents of every tensor that a replay assigns to."""
        return [storage.buffer.read(0, storage.size_bytes) for storage in self.written if storage.buffer]

    def restore(self, state: list[bytes]) -> None:
        """Put back what `state` gave."""
        for storage, contents in zip([s for s in self.written if s.buffer], state, strict=True):
            assert storage.buffer is not None
            storage.buffer.write(contents)


class Jit(Generic[P, R]):
    """A function that is recorded. `reset()` forgets the recordings; `kernels` says how many a replay runs."""

    def __init__(self, function: Callable[P, R]):
        functools.update_wrapper(self, function)
        self.function = function
        self.name = getattr(function, "__qualname__", repr(function))
        self._seen: dict[Any, Recording | None] = {}

    def reset(self) -> None:
        """Forget every recording; the next two calls run and record again."""
        self._seen.clear()

    @property
    def kernels(self) -> int:
        """How many kernels the last recording submits."""
        recordings = [r for r in self._seen.values() if r is not None]
        return sum(len(plan.launches) for plan, _, _ in recordings[-1].ran_plans) if recordings else 0

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method is recorded once per object, since the object's tensors are part of what is recorded."""
        if instance is None:
            return self
        bound = Jit(self.function.__get__(instance, owner))
        instance.__dict__[self.function.__name__] = bound
        return bound

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if realizing.recording.now is not None:
            return self.function(*args, **kwargs)  # part of the recording around it
        tensors: list[Tensor] = []
        key = (_key(args, tensors, self.name), _key(kwargs, tensors, self.name))
        for i, tensor in enumerate(tensors):
            if tensor.requires_grad:
                raise UsageError(
                    f"[jit] {self.name}: tensor argument {i} {tensor.shape} requires a gradient. "
                    "Let the function reach parameters from outside, or pass x.detach()."
                )
        if any(t.node.op is not Op.BUFFER for t in tensors):
            realizing.realize(tensors)
        storages = [realizing.storage_of(t) for t in tensors]
        if key not in self._seen:
            if len(self._seen) >= MAX_RECORDINGS:
                raise UsageError(
                    f"[jit] {self.name} was called with {MAX_RECORDINGS} different shapes or plain values, each of "
                    "which needs a recording of its own. Pass what varies as a Tensor, or call reset()."
                )
            self._seen[key] = None
            return self._first_call(args, kwargs)
        known = self._seen[key]
        if known is None:
            known, result = self._record(args, kwargs, tensors, storages)
            self._seen[key] = known
            return result
        if known.checks_left:
            known.checks_left -= 1
            self._check(known, args, kwargs, storages)
        return known.replay(storages)  # type: ignore[no-any-return]

    def _check(self, known: Recording, args: Any, kwargs: Any, storages: list[Storage]) -> None:
        """HCQ_JIT_CHECK: run the function itself and a replay from one state, and compare everything they leave."""
        before = known.state()
        eager = self.function(*args, **kwargs)
        realizing.realize(_tensors(eager))
        wanted = [_elements(t) for t in _tensors(eager)], known.state()
        known.restore(before)
        replayed = known.replay(storages)
        found = [_elements(t) for t in _tensors(replayed)], known.state()
        known.restore(before)
        for what, want, got in zip(("result", "assigned tensor"), wanted, found, strict=True):
            for number, (a, b) in enumerate(zip(want, got, strict=True)):
                if a != b:
                    raise UsageError(
                        f"[jit] {self.name}: {what} {number} of a replay differs from the function's own. It depends "
                        "on something a recording cannot see: a plain Python value that changes from call to call, or "
                        "state outside of tensors. Pass it as an argument, or keep it in a tensor."
                    )

    def _first_call(self, args: Any, kwargs: Any) -> R:
        result = self.function(*args, **kwargs)
        realizing.realize(_tensors(result))
        return result

    def _record(
        self, args: Any, kwargs: Any, tensors: list[Tensor], storages: list[Storage]
    ) -> tuple[Recording, R]:
        """Run the function on stand-ins for its arguments: the same memory, but told apart from all other tensors."""
        own = [Storage(s.device, s.dtype, s.shape, s.buffer) for s in storages]
        stand_ins = iter(
            [Tensor._of(_shaped(storage.node(), t.shape), t.device) for storage, t in zip(own, tensors)]
        )
        args, kwargs = _mapped((args, kwargs), lambda _: next(stand_ins))
        device = tensors[0].device if tensors else devices.default()
        recording = Recording(self.name, own, device)
        before = list(live)  # held, so that none of their ids is used again
        realizing.recording.now = recording
        try:
            result = self.function(*args, **kwargs)
            known = {id(t) for t in before}
            left = [t for t in live if id(t) not in known]
            realizing.realize([*_tensors(result), *left])  # what stays alive holds the last replay's values
        finally:
            realizing.recording.now = None
        recording.finish(result)
        return recording, result


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """Record a function of tensors and replay it.

    The function's tensors, in arguments and results (alone, or in lists, tuples and dicts), may differ from call to
    call in values, not in shape or dtype; a new shape or plain value is a new recording. Python code in the function
    runs in the first two calls only. Tensors it assigns to (weights, optimizer state, random counters) go on changing.

    Raises  UsageError for what a recording cannot mean: .numpy(), .item() or a branch on a tensor inside the function,
            a tensor made from host data inside it, assigning to an argument

    With HCQ_JIT_CHECK=1 the first replays are compared with what the function itself computes from the same state.
    """
    return Jit(function)


def _shaped(node: Node, shape: tuple[int, ...]) -> Node:
    return node if node.shape == shape else Node(Op.RESHAPE, node.dtype, (node,), shape)


def _memory(tensor: Tensor) -> Storage:
    node = tensor.node
    while node.op is not Op.BUFFER:
        node = node.src[0]
    storage = node.arg
    assert isinstance(storage, Storage)
    return storage


def _key(value: Any, tensors: list[Tensor], name: str) -> Any:
    """A hashable word for an argument; its tensors are collected and stand there as shapes."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return (Tensor, value.shape, value.dtype, value.device)
    if isinstance(value, (list, tuple)):
        return (type(value), *[_key(item, tensors, name) for item in value])
    if isinstance(value, dict):
        return (dict, *[(k, _key(item, tensors, name)) for k, item in value.items()])
    try:
        hash(value)
    except TypeError:
        raise UsageError(
            f"[jit] {name}: an argument of type {type(value).__name__} can be neither recorded nor compared. "
            "Pass tensors, plain values, or lists, tuples and dicts of them."
        ) from None
    return (type(value), value)


def _elements(tensor: Tensor) -> bytes:
    storage = realizing.storage_of(tensor)
    assert storage.buffer is not None
    return storage.buffer.read(0, storage.size_bytes)


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            found.extend(_tensors(item))
    elif isinstance(value, dict):
        for item in value.values():
            found.extend(_tensors(item))
    return found


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of lists, tuples and dicts with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_mapped(item, change) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    return value
