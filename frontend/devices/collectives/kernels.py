"""Kernels of collectives: what adds one buffer to another, and what stores numbers to see whether they arrive.

In       a device, a dtype, how many elements
Out      launches in a queue
Changes  the queue; plans are kept as those of tensors are
Next     run/plan.py (how a graph becomes kernels), perform.py (who adds)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.structure import structure_of
from hcq.frontend.run.plan import Plan, plan_for
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.queue import Queue
from hcq.work.peers import PeerQueue

Step = tuple[Any, list[Any], Any, Any]


def add(queue: Queue, name: str, op: Op, dtype: DType, count: int, into: Any, more: Any) -> None:
    """Record: `into` becomes what `op` makes of it and `more`, element by element.

    name  the device of the tensor layer whose kernels these are; the queue may be its companion's
    """
    for image, places, grid, block in _adders(queue.device, name, op, dtype, count):
        queue.dispatch(image, [(into, more)[place] for place in places], grid, block)


def copy(queue: Queue, name: str, dtype: DType, count: int, into: Any, source: Any) -> None:
    """Record: `into` gets the elements of `source`, by a kernel: either may be a symbol of a graph."""
    for program, args, grid, block in copies(queue.device, name, dtype, count, source, into):
        queue.dispatch(program, args, grid, block)


def copies(device: Any, name: str, dtype: DType, count: int, source: Any, into: Any) -> list[Step]:
    """The launches of `copy`."""
    return [
        (program, [(source, into)[place] for place in places], grid, block)
        for program, places, grid, block in _copiers(device, name, dtype, count)
    ]


@lru_cache(maxsize=256)
def _copiers(device: Any, name: str, dtype: DType, count: int) -> list[Step]:
    source = Storage(name, dtype, (count,))
    root = Node(Op.CONTIGUOUS, dtype, (source.node(),))
    plan = plan_for(structure_of([root]), [root], name)
    return [*loaded(plan, device, count * dtype.itemsize)]


@lru_cache(maxsize=256)
def _adders(device: Any, name: str, op: Op, dtype: DType, count: int) -> list[Step]:
    into, more = Storage(name, dtype, (count,)), Storage(name, dtype, (count,))
    both = Node(op, dtype, (into.node(), more.node()))
    root = Node(Op.ASSIGN, dtype, (into.node(), both))
    structure = structure_of([root])
    order = [0 if storage is into else 1 for storage in structure.storages]
    extent = count * dtype.itemsize
    steps = loaded(plan_for(structure, [root], name), device, extent)
    return [
        (program, [order[value] for value in values], grid, block) for program, values, grid, block in steps
    ]


def loaded(plan: Plan, device: Any, extent: int) -> list[Any]:
    """A plan's launches on a device: that of the plan, or its companion. Each argument is used for so many bytes."""
    return [
        (
            device.load(
                launch.image,
                launch.entry,
                args=("buffer",) * len(launch.arguments),
                scratch_bytes=launch.scratch_bytes,
                name=launch.name,
                access=["write" if value in launch.writes else "read" for value in launch.arguments],
                extents=[extent] * len(launch.arguments),
            ),
            launch.arguments,
            launch.grid,
            launch.block,
        )
        for launch in plan.launches
    ]


def _forget(name: str) -> None:
    """A device is gone, and with it its programs."""
    _adders.cache_clear()
    _copiers.cache_clear()


devices.on_close.append(_forget)


def stores_numbers(device: Any, target: Any) -> None:
    """Run a kernel of this device that stores 0, 1, 2, ... as int32 into a buffer of another."""
    count = target.size_bytes // 4
    storage = Storage(device.name, dtypes.int32, (count,))
    root = Node(Op.ASSIGN, dtypes.int32, (storage.node(), Node(Op.IOTA, dtypes.int32, (), count)))
    plan = plan_for(structure_of([root]), [root], device.name)
    queue = PeerQueue(device)
    for program, values, grid, block in loaded(plan, device, target.size_bytes):
        queue.dispatch(program, [target for _ in values], grid, block)
    queue.submit().wait()
