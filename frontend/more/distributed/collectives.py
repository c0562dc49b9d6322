"""Collectives: tensors that several ranks make together, and tensors sent from one rank to another.

In       tensors of any device, of equal shape and dtype on every rank
Out      new tensors; `all_reduce`, `all_gather`, `reduce_scatter`, `broadcast`, `barrier`, `send`, `receive`
Changes  device memory of the results; `broadcast_into` writes into the tensors it is given
Next     sums.py (how arrays travel), host.py (how they get to the host), group.py (deadlines, who is missing)

A collective computes its argument, waits for it, and returns when the result is in memory: it is no part of a graph,
and no part of a recording. Gradients do not flow through it: tensor_parallel.py has the two that they do flow through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from hcq import checks
from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import watcher
from hcq.frontend.core.storage import Storage, next_write
from hcq.frontend.more.distributed import sums
from hcq.frontend.more.distributed.group import Group, Operation
from hcq.frontend.more.distributed.host import Reader, Writer, pieces
from hcq.frontend.more.distributed.job import world
from hcq.frontend.run.realize import realize, storage_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op

SUMS = tuple(sums.COMBINE)
NO_SUMS = ("bool", "fp8e4m3", "fp8e5m2")  # dtypes without arithmetic on the host


def all_reduce(
    x: Tensor, op: str = "sum", group: Group | None = None, timeout_ms: float | None = None, way: str = ""
) -> Tensor:
    """The sum over all ranks of the group, element by element; the same bits on each. x.shape -> x.shape.

    op    "sum", "mean", "max" or "min"; the order of a sum is the tree of sums.py whatever the number of ranks
    way   "direct" or "halving"; "" chooses
    Raises  WaitTimeout and RankLost naming the rank that is missing; UsageError when ranks disagree

    >>> world = hcq.distributed.init()
    >>> hcq.distributed.all_reduce(Tensor([1.0, 2.0])).tolist() == [1.0 * world.size, 2.0 * world.size]
    True
    """
    group = group or world()
    _check_sum("all_reduce", x, op)
    buffer = _values("all_reduce", x)
    made = _made(x, x.shape, "all_reduce")
    with _operation(group, "all_reduce", x, f"{op} {_what(x)} {way}", timeout_ms) as running:
        reduce_buffer(running, buffer, made.arg.buffer, x.dtype.name, op, way)
    return Tensor._of(made, x.device)


def reduce_buffer(
    running: Operation, source: Any, target: Any, dtype: str, op: str = "sum", way: str = ""
) -> None:
    """`all_reduce` of buffers: of the elements of one into another, which may be the same."""
    join = sums.combine(op, dtype)
    reader, writer = Reader(source), Writer(target)
    steps = list(pieces(source.size_bytes, source.device, 64))
    if steps:
        reader.begin(*steps[0])
    for number, (at, size_bytes) in enumerate(steps):
        if number + 1 < len(steps):
            reader.begin(*steps[number + 1])
        given = sums.as_numbers(reader.get(at, size_bytes), dtype)
        place = sums.as_numbers(writer.place(at, size_bytes), dtype)
        sums.all_reduce(running, given, place, join, way)
        if op == "mean":
            sums.divide(place, running.size, dtype)
        writer.put(at, size_bytes)
    writer.finish()


def all_gather(
    x: Tensor, dim: int = 0, group: Group | None = None, timeout_ms: float | None = None
) -> Tensor:
    """The tensors of all ranks, joined along an axis in the order of ranks. (n, ...) -> (n * ranks, ...).

    >>> world = hcq.distributed.init()
    >>> hcq.distributed.all_gather(Tensor([[1.0]]), dim=1).shape == (1, world.size)
    True
    """
    group = group or world()
    axis = x._axis_of("all_gather", dim)
    buffer = _values("all_gather", x)
    made = _made(x, (group.size, *x.shape), "all_gather")
    with _operation(group, "all_gather", x, _what(x), timeout_ms) as running:
        gather_buffer(running, buffer, made.arg.buffer)
    joined = Tensor._of(made, x.device)
    if axis == 0:
        return joined.reshape(group.size * x.shape[0], *x.shape[1:])
    return Tensor.cat([joined[number] for number in range(group.size)], axis)


def gather_buffer(running: Operation, source: Any, target: Any) -> None:
    """`all_gather` of buffers: rank r's bytes go to the r-th part of the target."""
    size = running.size
    length = source.size_bytes
    reader, writer = Reader(source), Writer(target)
    if writer.is_direct:
        whole = writer.place(0, length * size)
        whole[running.rank * length : (running.rank + 1) * length] = reader.get(0, length)
        sums.all_gather(running, whole, [length * number for number in range(size + 1)])
        return
    steps = list(pieces(length, source.device))
    for number, (at, size_bytes) in enumerate(steps):
        if number + 1 < len(steps):
            reader.begin(at, size_bytes)
            reader.begin(*steps[number + 1])
        everyone = np.empty(size * size_bytes, np.uint8)
        edges = [size_bytes * each for each in range(size + 1)]
        everyone[edges[running.rank] : edges[running.rank + 1]] = reader.get(at, size_bytes)
        sums.all_gather(running, everyone, edges)
        for each in range(size):
            writer.copy(each * length + at, everyone[edges[each] : edges[each + 1]])
    writer.finish()


def reduce_scatter(
    x: Tensor, op: str = "sum", group: Group | None = None, timeout_ms: float | None = None
) -> Tensor:
    """This rank's part of the sum over all ranks: of equal parts along the first axis. (n, ...) -> (n / ranks, ...).

    >>> world = hcq.distributed.init()
    >>> hcq.distributed.reduce_scatter(Tensor.ones(4 * world.size)).shape
    (4,)
    """
    group = group or world()
    _check_sum("reduce_scatter", x, op)
    if not x.shape or x.shape[0] % group.size:
        raise UsageError(
            f"[reduce_scatter] shape {x.shape} over {group.size} ranks: the first axis must be a multiple. Pad it."
        )
    buffer = _values("reduce_scatter", x)
    made = _made(x, (x.shape[0] // group.size, *x.shape[1:]), "reduce_scatter")
    with _operation(group, "reduce_scatter", x, f"{op} {_what(x)}", timeout_ms) as running:
        scatter_buffer(running, buffer, made.arg.buffer, x.dtype.name, op)
    return Tensor._of(made, x.device)


def scatter_buffer(running: Operation, source: Any, target: Any, dtype: str, op: str = "sum") -> None:
    """`reduce_scatter` of buffers: the target is this rank's part of the sum of the sources."""
    size, length = running.size, target.size_bytes
    join = sums.combine(op, dtype)
    reader, writer = Reader(source), Writer(target)
    for at, size_bytes in pieces(length, source.device, 64):
        if reader.is_direct:
            given = reader.get(0, source.size_bytes)
        else:
            steps = [(part * length + at, size_bytes) for part in range(size)]
            given = np.empty(size * size_bytes, np.uint8)
            reader.begin(*steps[0])
            for part, step in enumerate(steps):
                if part + 1 < size:
                    reader.begin(*steps[part + 1])
                given[part * size_bytes : (part + 1) * size_bytes] = reader.get(*step)
        numbers = sums.as_numbers(given, dtype)
        place = sums.as_numbers(writer.place(at, size_bytes), dtype)
        edges = [place.size * part for part in range(size + 1)]
        sums.reduce_scatter(running, numbers, place, edges, join)
        if op == "mean":
            sums.divide(place, size, dtype)
        writer.put(at, size_bytes)
    writer.finish()


def broadcast(
    x: Tensor, source: int = 0, group: Group | None = None, timeout_ms: float | None = None
) -> Tensor:
    """One rank's tensor, on every rank. The others give one of the same shape and dtype, whose values do not matter.

    >>> _ = hcq.distributed.init()
    >>> hcq.distributed.broadcast(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    group = group or world()
    _check_place("broadcast", "source", source, group)
    buffer = _values("broadcast", x)
    made = _made(x, x.shape, "broadcast")
    with _operation(group, "broadcast", x, f"from {source} {_what(x)}", timeout_ms) as running:
        _broadcast_buffer(running, buffer, made.arg.buffer, source)
    return Tensor._of(made, x.device)


def broadcast_into(
    tensors: Iterable[Tensor], source: int = 0, group: Group | None = None, timeout_ms: float | None = None
) -> None:
    """Write one rank's values into the same tensors of all others, in place: parameters before training.

    >>> _ = hcq.distributed.init()
    >>> net = nn.Linear(2, 1)
    >>> hcq.distributed.broadcast_into(net.parameters())
    >>> net.weight.shape
    (1, 2)
    """
    group = group or world()
    _check_place("broadcast", "source", source, group)
    found = list(tensors)
    realize(found)
    if group.size == 1:
        return
    for tensor in found:
        value = broadcast(tensor.detach(), source, group, timeout_ms)
        if group.rank != source:
            tensor.assign(value)
    realize(found)


def barrier(group: Group | None = None, timeout_ms: float | None = None) -> None:
    """Return once every rank of the group has come here. Raises WaitTimeout naming those that have not.

    >>> _ = hcq.distributed.init()
    >>> hcq.distributed.barrier() is None
    True
    """
    group = group or world()
    with group.operation("barrier", timeout_ms=timeout_ms) as running:
        running.meet()


def send(x: Tensor, to: int, group: Group | None = None, timeout_ms: float | None = None) -> None:
    """Send a tensor to another rank, which calls `receive`; return when it may be written over.

    >>> world = hcq.distributed.init()
    >>> if world.size > 1 and world.rank == 0:
    ...     hcq.distributed.send(Tensor([1.0, 2.0]), to=1)
    >>> if world.size > 1 and world.rank == 1:
    ...     print(hcq.distributed.receive(Tensor.zeros(2), source=0))
    >>> hcq.distributed.send(Tensor([1.0]), to=world.size)
    Traceback (most recent call last):
    hcq.errors.UsageError: send: to=...; takes a whole number from 0 to ...
    """
    start_send(x, to, group, timeout_ms).wait()


class Sending:
    """A tensor that is on its way; `wait` returns once it is there, or may be written over.

    >>> rank, x = hcq.distributed.init().rank, Tensor([1.0, 2.0])
    >>> sending = hcq.distributed.start_send(x, to=rank)
    >>> received = hcq.distributed.receive(x, source=rank).tolist()
    >>> sending.wait()
    >>> received
    [1.0, 2.0]
    """

    def __init__(self, running: Operation, requests: list[Any], kept: object) -> None:
        self.running, self.requests, self.kept = running, requests, kept

    def wait(self) -> None:
        """Raises WaitTimeout and RankLost, naming the other rank."""
        with self.running:
            self.running.wait(self.requests)
        self.kept = None


def start_send(x: Tensor, to: int, group: Group | None = None, timeout_ms: float | None = None) -> Sending:
    """Begin to send a tensor: the deadline counts from here to the end of `wait`. Do not assign to it meanwhile.

    >>> rank, x = hcq.distributed.init().rank, Tensor([3.0])
    >>> sending = hcq.distributed.start_send(x, to=rank)
    >>> hcq.distributed.receive(x, source=rank).tolist()
    [3.0]
    >>> sending.wait()
    """
    group = group or world()
    _check_place("send", "to", to, group)
    buffer = _values("send", x)
    running = group.operation("send", x.nbytes, _what(x), timeout_ms, to)
    header = running.header()
    with running:
        requests = [running.send(header, to)]
        kept: list[Any] = [x, header]
        reader = Reader(buffer)
        for at, size_bytes in pieces(x.nbytes, buffer.device):
            array = reader.get(at, size_bytes)
            if not reader.is_direct:  # the staging buffer serves the next piece
                array = array.copy()
                kept.append(array)
            requests.append(running.send(array, to))
    return Sending(running, requests, kept)


def receive(like: Tensor, source: int, group: Group | None = None, timeout_ms: float | None = None) -> Tensor:
    """What another rank sends: a tensor of the shape, dtype and device of `like`.

    Raises  WaitTimeout and RankLost naming that rank; UsageError when it sends another shape or dtype

    >>> rank, x = hcq.distributed.init().rank, Tensor([1.0, 2.0])
    >>> sending = hcq.distributed.start_send(x, to=rank)
    >>> hcq.distributed.receive(Tensor.zeros(2), source=rank).tolist()
    [1.0, 2.0]
    >>> sending.wait()
    """
    group = group or world()
    _check_place("receive", "source", source, group)
    _refuse_recording("receive")
    made = _made(like, like.shape, "receive")
    buffer = made.arg.buffer
    with group.operation("recv", like.nbytes, _what(like), timeout_ms, source) as running:
        header = running.header()
        running.wait([running.receive(header, source)])
        running.check_header(header)
        writer = Writer(buffer)
        for at, size_bytes in pieces(like.nbytes, buffer.device):
            running.wait([running.receive(writer.place(at, size_bytes), source)])
            writer.put(at, size_bytes)
        writer.finish()
    return Tensor._of(made, like.device)


def _broadcast_buffer(running: Operation, source: Any, target: Any, root: int) -> None:
    """A binomial tree: whoever has a piece sends it on, to ranks at distance 1, 2, 4, ..."""
    reader, writer = Reader(source), Writer(target)
    own = (running.rank - root) % running.size
    for at, size_bytes in pieces(target.size_bytes, target.device):
        place = writer.place(at, size_bytes)
        if own == 0:
            place[:] = reader.get(at, size_bytes)
        distance = 1
        requests = []
        while distance < running.size:
            if own < distance and own + distance < running.size:
                requests.append(running.send(place, (own + distance + root) % running.size))
            elif distance <= own < 2 * distance:
                running.wait([running.receive(place, (own - distance + root) % running.size)])
            distance *= 2
        running.wait(requests)
        writer.put(at, size_bytes)
    writer.finish()


def _values(call: str, x: Any) -> Any:
    """The buffer with a tensor's elements in row-major order, computed now."""
    if not isinstance(x, Tensor):
        raise UsageError(f"[{call}] {shown(x)}: takes a tensor.")
    _refuse_recording(call)
    node = x.node
    x.realize()
    storage = storage_of(x)
    if node.op is not Op.DETACH and (x._requires_grad or (x.node.op is Op.BUFFER and storage.tracked)):
        raise UsageError(
            f"[{call}] a gradient would flow through this tensor of shape {x.shape}, and ends here. Pass x.detach(), "
            "or use enter() and leave() of hcq.distributed for a part of a model."
        )
    if storage.buffer is None:  # no elements
        storage.buffer = devices.get(x.device).alloc(0, call)
    return storage.buffer if storage.buffer.size_bytes == x.nbytes else storage.buffer.view(0, x.nbytes)


def _refuse_recording(call: str) -> None:
    recorder = watcher()
    if recorder is not None:
        recorder.forbids(call, "other ranks take part in it. Record what is before and what is after it")


def _made(like: Tensor, shape: Sequence[int], name: str) -> Any:
    """The leaf of new memory on the device of a tensor."""
    storage = Storage(like.device, like.dtype, tuple(shape))
    storage.buffer = devices.get(like.device).alloc(prod(shape) * like.dtype.itemsize, name)
    storage.version = next_write()
    return storage.node()


def _operation(group: Group, name: str, x: Tensor, what: str, timeout_ms: float | None) -> Operation:
    return group.operation(name, x.nbytes, what, timeout_ms)


def _what(x: Tensor) -> str:
    return f"{x.dtype.name} {x.shape}"


def _check_sum(call: str, x: Any, op: str) -> None:
    if op not in SUMS:
        raise UsageError(f"[{call}] op={shown(op)}; takes one of {', '.join(SUMS)}.")
    if not isinstance(x, Tensor):
        raise UsageError(f"[{call}] {shown(x)}: takes a tensor.")
    if x.dtype.name in NO_SUMS:
        raise UsageError(f"[{call}] {x.dtype.name} is not summed on the host. Cast it: x.float().")
    if op == "mean" and not x.dtype.is_float:
        raise UsageError(f"[{call}] a mean of {x.dtype.name} is no {x.dtype.name}. Cast it: x.float().")
    if x.dtype is dtypes.bfloat16 and op in ("max", "min"):
        return


def _check_place(call: str, name: str, place: Any, group: Group) -> None:
    checks.whole(call, name, place, 0, group.size - 1)
