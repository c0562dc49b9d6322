"""Plans: a schedule with its programs and its memory, ready to run again and again.

In       a structure (what to compute), storages (on which memory)
Out      the storages of the results; the work is submitted, not waited for
Changes  device memory; the cache of plans in memory and on disk
Next     schedule/schedule.py (what is in a plan), compiler/compile.py (its kernels), hcq/queue.py (where they go)

The first time a structure is met it is scheduled and compiled; its plan, code objects included, is kept under the
structure's key. A process that meets the same structure later needs neither the scheduler nor the compiler.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from operator import itemgetter
from typing import Any

from hcq import config
from hcq.errors import UsageError
from hcq.frontend.core import above
from hcq.frontend.core import device as devices
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.structure import Structure
from hcq.frontend.run import kernel_sources, timed_out_work
from hcq.frontend.run.memory_plan import share
from hcq.frontend.run.toolchain import toolchain
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Routine, Shape
from hcq.ir.op import Op
from hcq.record import record
from hcq.system import guarded_child, helper_forks
from hcq.system.cache import DiskCache


@record(frozen=True)
class Launch:
    """One kernel of a plan: its code and which value each argument is."""

    name: str
    arguments: tuple[int, ...]
    writes: tuple[int, ...]
    entry: str
    image: bytes
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scratch_bytes: int
    dynamic_shared_bytes: int
    tensor_maps: tuple[str, ...]
    flops: int
    traffic_bytes: int
    choice: str
    numbers: tuple[str, ...] = ()  # of parameters that are none, see hcq/code/fixed_numbers.py


@record(frozen=True)
class Slot:
    """A value of a plan. kind as in schedule.Value; a temporary shares memory number `memory` with others."""

    kind: str
    dtype: DType
    shape: Shape
    size_bytes: int
    memory: int = -1


Step = tuple[Any, tuple[int, ...], tuple[int, int, int], tuple[int, int, int]]  # program, values, grid, block


class Plan:
    """Launches over numbered values: first the inputs, then outputs and temporaries."""

    def __init__(
        self, device: str, values: Sequence[Slot], launches: Sequence[Launch], results: Sequence[int]
    ):
        self.device = device
        self.values = tuple(values)
        self.launches = tuple(launches)
        self.results = tuple(results)
        self.inputs = sum(value.kind == "input" for value in values)
        memories: dict[int, int] = {}
        for value in values:
            if value.kind == "temporary":
                memories[value.memory] = max(memories.get(value.memory, 0), value.size_bytes)
        self.memory_sizes = tuple(memories[i] for i in range(len(memories)))
        # traces and errors call memory by the kernel that first writes it
        names = {value: launch.name for launch in reversed(launches) for value in launch.writes}
        self._made = [(n, v, names.get(n, "empty")) for n, v in enumerate(values) if v.kind != "input"]
        shared = {
            v.memory: f"{name} (temporary)" for _, v, name in reversed(self._made) if v.kind == "temporary"
        }
        self._memories = [(size, shared[i]) for i, size in enumerate(self.memory_sizes)]
        # one kernel that makes one value, as eager programs have them
        self._is_single = (
            len(self.launches) == 1
            and [(n, v.kind) for n, v, _ in self._made] == [(n, "output") for n in self.results]
            and self.results == (self.inputs,)
        )
        self._steps: list[Step] | None = None
        self._device: Any = None
        # of a single kernel, once it has run: what launches it, and its buffers in its order
        self._launch: Callable[[Any], object] | None = None
        self._in_order: Callable[[Any], Any] = list
        self._kind: object = None  # of the memory of its result, see Storage
        self.is_recent = False  # asked for since it was last looked at for eviction
        # what it takes in memory, about: the objects that are kept for each value and each launch, and the code
        images = {launch.image for launch in launches}
        self.size_bytes = sum(map(len, images)) + 1024 * len(values) + 4096 * len(launches)

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        """Submit every launch. Returns one storage per root: a new one, or the input that was assigned to."""
        try:
            return self._run(storages)
        except UsageError:
            device = self._device
            if device is not None and device.dead and not device.revive():
                self._steps = self._device = self._launch = None  # another thread has closed it meanwhile
            for storage in storages:
                devices.check_values("realize", storage)
            if self._device is not None:
                raise
        return self.run(storages)  # on the device that opens anew

    def run_single(self, storages: Sequence[Storage]) -> Storage:
        """`run` of a plan with one result, by a shorter way when it is one kernel that has run before."""
        launch = self._launch
        buffers = [storage.buffer for storage in storages]
        if launch is None or timed_out_work.late or None in buffers:
            return self.run(storages)[0]
        ((_, value, name),) = self._made
        try:
            buffer = self._device.memory.alloc(value.size_bytes, name)
            buffers.append(buffer)
            launch(self._in_order(buffers))
        except UsageError:
            return self.run(storages)[0]  # which says what is wrong, or opens the device anew
        storage = Storage(self.device, value.dtype, value.shape, buffer)
        storage.kind = self._kind = self._kind or storage.kind_of()
        return storage

    def _run(self, storages: Sequence[Storage]) -> list[Storage]:
        steps = self._steps
        if steps is None:
            steps = self._load()
        device = self._device
        alloc = device.memory.alloc  # what device.alloc calls
        buffers = [storage.buffer or _allocate(storage, alloc) for storage in storages]
        if timed_out_work.late:
            timed_out_work.drop(device, buffers)
        if self._is_single:
            ((program, arguments, grid, block),) = steps
            ((_, value, name),) = self._made
            buffer = alloc(value.size_bytes, name)
            buffers.append(buffer)
            device.launch(program, [buffers[i] for i in arguments], grid, block)
            if self._launch is None and len(arguments) > 1:
                self._in_order = itemgetter(*arguments)
                self._launch = device.prepare(program, grid, block)
            return [Storage(self.device, value.dtype, value.shape, buffer)]
        made: dict[int, Storage] = {}
        memories = [alloc(size, name) for size, name in self._memories]
        for number, value, name in self._made:
            if value.kind == "output":
                buffer = alloc(value.size_bytes, name)
                made[number] = Storage(self.device, value.dtype, value.shape, buffer)
                buffers.append(buffer)
            else:
                buffers.append(memories[value.memory])
        queue = device.queue()
        for program, arguments, grid, block in steps:
            queue.dispatch(program, [buffers[i] for i in arguments], grid, block)
        queue.submit()
        return [storages[i] if i < self.inputs else made[i] for i in self.results]

    def programs(self) -> list[Step]:
        """The launches, loaded on the device."""
        return self._load() if self._steps is None else self._steps

    def _load(self) -> list[Step]:
        device = devices.get(self.device)
        self._device = device
        self._launch = None
        self._steps = [
            (program_of(device, launch), launch.arguments, launch.grid, launch.block)
            for launch in self.launches
        ]
        return self._steps

    def __str__(self) -> str:
        """A table: kernel, what it stores and reads, work and traffic."""
        rows = []
        for i, launch in enumerate(self.launches):
            stores = ", ".join(self._value(v) for v in launch.writes)
            reads = ", ".join(self._value(v) for v in launch.arguments if v not in launch.writes)
            rows.append(
                f"{i:3} {launch.name:32} {launch.flops:>12,} flop {launch.traffic_bytes:>12,} B  {stores} <- {reads}"
            )
        return "\n".join(rows)

    def _value(self, number: int) -> str:
        value = self.values[number]
        return f"{value.kind[:3]}{number}:{value.dtype.name}{list(value.shape)}"


def _allocate(storage: Storage, alloc: Any) -> Any:
    storage.buffer = alloc(storage.size_bytes)
    return storage.buffer


# of HCQ_DEBUG: what can be seen only while kernels are compiled
COMPILER_WORDS = {"ir", "code", "passes", "rules"}
MAX_PLANS = 2048  # plans kept in memory, and how large they may be together
MAX_PLAN_BYTES = 64 << 20

_plans: OrderedDict[tuple[Any, ...], Plan] = OrderedDict()
# plans of single operations by the keys of short.py, for as long as they are kept here
_short: dict[tuple[Any, ...], weakref.ref[Plan]] = {}
_plan_bytes = 0
_Asked = tuple[int, int, tuple[str, ...], tuple[str, ...]]  # scratch, dynamic shared memory, maps, numbers
_programs: weakref.WeakValueDictionary[tuple[str, str, bytes, tuple[bool, ...], _Asked], Any] = (
    weakref.WeakValueDictionary()
)


def kept(key: tuple[Any, ...]) -> Plan | None:
    """The plan of a structure that is in memory, which it stays in for a while."""
    plan = _plans.get(key)
    if plan is not None:
        plan.is_recent = True
    return plan


def key_on(structure: Structure, device: str) -> tuple[Any, ...]:
    """What a plan is kept by: what reads no memory does not say of itself on which device it is computed."""
    return structure.key if structure.storages else (*structure.key, device)


def plan_for(structure: Structure, roots: Sequence[Node], device: str) -> Plan:
    """The plan of a structure: from memory, from disk, or made now."""
    key = key_on(structure, device)
    plan = kept(key)
    if plan is None:
        if "graph" in config.current().debug:
            from hcq.ir.show import show_graph

            _print(f"graph on {device}", show_graph(Node(Op.SINK, roots[0].dtype, tuple(roots))))
        plan = _find(structure, roots, device)
        _keep(key, plan)
    return plan


def short_plan(key: tuple[Any, ...]) -> Plan | None:
    """The plan that was noted under a key of short.py, unless it was forgotten meanwhile."""
    known = _short.get(key)
    plan = None if known is None else known()
    if plan is not None:
        plan.is_recent = True
    return plan


def note_short(key: tuple[Any, ...], plan: Plan) -> None:
    """A key of short.py stands for this plan from now on."""
    if len(_short) >= MAX_PLANS:
        _short.clear()
    _short[key] = weakref.ref(plan)


def _keep(key: tuple[Any, ...], plan: Plan) -> None:
    """Room for a new plan: those go that were not asked for since they were last looked at. They are still on disk."""
    global _plan_bytes
    _plans[key] = plan
    _plan_bytes += plan.size_bytes
    if plan._device is not None and plan._device.dead:
        _forget(plan.device)  # another thread has closed it meanwhile, and did not see this plan
    while len(_plans) > MAX_PLANS or (_plan_bytes > MAX_PLAN_BYTES and len(_plans) > 1):
        oldest, old = _plans.popitem(last=False)
        if old.is_recent or old is plan:
            old.is_recent = False
            _plans[oldest] = old
        else:
            _plan_bytes -= old.size_bytes


def _forget(device: str) -> None:
    """The device is gone. It may come back as another, by HCQ_EMULATE: its plans are on disk."""
    global _plan_bytes
    for key, plan in list(_plans.items()):
        if plan.device == device and _plans.pop(key, None) is not None:
            _plan_bytes -= plan.size_bytes
    toolchain.cache_clear()


devices.on_close.append(_forget)


def _find(structure: Structure, roots: Sequence[Node], device: str) -> Plan:
    """A plan from disk whose programs load; any doubt about what is there, and it is made anew."""
    disk = DiskCache()
    name = f"{structure.digest()}-{toolchain(device)}"
    if not config.current().debug & COMPILER_WORDS:  # what should be shown has to be done
        plan = _decode(device, disk.get("plan", name + _search_digest()))
        # a trace holds what its kernels were made from
        is_known = plan is not None and (not kernel_sources.wanted() or _sources_are_known(plan, disk))
        if plan is not None and is_known and _answers(plan, structure, roots) and _loads(plan):
            _print_plan(plan, [])
            return plan
    plan = _make(structure, roots, device, disk)
    if not _loads(plan):  # an object that the compiler found in the cache
        from hcq.compiler.compile import forget

        forget()
        plan = _make(structure, roots, device, _WriteOnly(disk.root))
        plan.programs()
    disk.put("plan", name + _search_digest(), _encode(plan))
    return plan


def _answers(plan: Plan, structure: Structure, roots: Sequence[Node]) -> bool:
    """Whether a plan takes what a structure reads, and gives as much as it is asked for."""
    inputs = [(value.dtype, value.size_bytes) for value in plan.values[: plan.inputs]]
    wanted = [(storage.dtype, storage.size_bytes) for storage in structure.storages]
    written = {value for launch in plan.launches for value in launch.writes}
    is_made = all(number in written or number < plan.inputs for number in plan.results)
    return inputs == wanted and len(plan.results) == len(roots) and is_made


def _loads(plan: Plan) -> bool:
    """Whether the device takes the plan's programs."""
    try:
        plan.programs()
    except UsageError:
        return False
    return True


class _WriteOnly(DiskCache):
    """A cache in which nothing is found."""

    def get(self, kind: str, key: bytes | str) -> bytes | None:
        return None


def _make(structure: Structure, roots: Sequence[Node], device: str, disk: DiskCache) -> Plan:
    from hcq.compiler.code_object import CodeObject
    from hcq.compiler.compile import compile_kernels, compile_known
    from hcq.frontend.schedule.schedule import schedule

    debug = config.current().debug
    target = devices.target(device)
    formats = _unit_formats(target)
    made = schedule(roots, structure.storages, target.threads, formats[0], target.most_arguments, formats[1])

    is_shown = bool(debug & COMPILER_WORDS) or kernel_sources.wanted()
    trace = (lambda line: print(line, file=sys.stderr)) if "rules" in debug else None
    stages: list[tuple[str, dict[str, str]]] = []  # each kernel's name, and the text of each stage

    kernels = [k for k in made.kernels if prod(k.sink.src[0].src[0].shape)]  # others have nothing to store
    given = {}  # of programs of somebody's own
    routines = [k for k in kernels if k.sink.src[0].src[1].op is Op.ROUTINE]
    if own := [k for k in routines if type(k.sink.src[0].src[1].arg) is not Routine]:
        from hcq.frontend.run import own_programs

        given = own_programs.launches(own, made.values, disk)
    compiled = [k.sink for k in kernels if k not in given]
    schedules = _searched(device, compiled, target)
    if not is_shown and not guarded_child.limits() and config.current().compilers > 1:
        with devices.toolchain(), helper_forks.of_helpers():
            compile_kernels(compiled, target, disk, config.current().compilers, schedules)
    launches = []
    for kernel in kernels:
        shown: dict[str, str] = {}
        if kernel in given:
            launches.append(given[kernel])
            continue
        try:
            with devices.toolchain():
                if is_shown or not guarded_child.limits():
                    code = compile_known(
                        kernel.sink, target, disk, schedules, shown.__setitem__ if is_shown else None, trace
                    )
                else:
                    sink = kernel.sink
                    made_bytes = guarded_child.run(
                        lambda sink=sink: compile_known(sink, target, disk, schedules).to_bytes(),  # type: ignore[misc]
                        f"compiling a kernel for {device}",
                    )
                    code = CodeObject.from_bytes(made_bytes)
        except BaseException:
            _print_stages(stages)  # of the kernels before the one that failed
            raise
        stages.append((code.name, shown))
        if kernel_sources.wanted():
            kernel_sources.keep(disk, code.image, code.entry, shown)
        launches.append(
            Launch(
                name=code.name,
                arguments=kernel.arguments,
                writes=tuple(sorted(kernel.writes)),
                entry=code.entry,
                image=code.image,
                grid=code.grid,
                block=code.block,
                scratch_bytes=code.scratch_bytes,
                dynamic_shared_bytes=code.dynamic_shared_bytes,
                tensor_maps=code.tensor_maps,
                flops=code.flops,
                traffic_bytes=code.traffic_bytes,
                choice=code.choice,
            )
        )
    temporaries = {n: v.size_bytes for n, v in enumerate(made.values) if v.kind == "temporary"}
    memory, _ = share([launch.arguments for launch in launches], temporaries)
    values = [
        Slot(v.kind, v.dtype, v.shape, v.size_bytes, memory.get(n, -1)) for n, v in enumerate(made.values)
    ]
    plan = Plan(device, values, launches, made.results)
    _print_plan(plan, stages)
    return plan


def _unit_formats(target: Any) -> tuple[list[DType], list[DType]]:
    """What a GPU's matrix units multiply, and what with scales of blocks; a processor has none."""
    if target.name == "cpu":
        return [], []
    from hcq.compiler.loops.matrix_units import narrow_formats, scaled_formats

    return narrow_formats(target.arch), scaled_formats(target.arch)


def _print_plan(plan: Plan, stages: list[tuple[str, dict[str, str]]]) -> None:
    """What HCQ_DEBUG asks for, in the order of the road: the schedule, then each kernel's stages."""
    if "schedule" in config.current().debug:
        _print(f"schedule on {plan.device}: {len(plan.launches)} kernels", str(plan))
    _print_stages(stages)


def _print_stages(stages: list[tuple[str, dict[str, str]]]) -> None:
    """stages: each kernel's name with the text of each stage; none where nothing was compiled."""
    debug = config.current().debug
    for name, shown in stages:
        for stage in ("passes", "ir", "code"):
            if stage in debug and stage in shown:
                _print(f"{stage} of {name}", shown[stage])


def _print(title: str, text: str) -> None:
    print(f"-- {title}\n{text}", file=sys.stderr)


def _searched(device: str, sinks: Sequence[Node], target: Any) -> Mapping[str, str]:
    """Kernel's key -> the schedule that a search found, or finds now, of those that HCQ_SEARCH is asked for."""
    settings = config.current()
    if not settings.search and settings.search_results is None:
        return {}
    with devices.toolchain():
        return above.schedules_for(device, sinks, target)


def _search_digest() -> str:
    """What a plan's kernels depend on besides: the results of searches, where they are used."""
    settings = config.current()
    if not settings.search and settings.search_results is None:
        return ""
    return above.schedules_digest()


def _sources_are_known(plan: Plan, disk: DiskCache) -> bool:
    """Whether it is known what the kernels of a plan were made from."""
    return all(kernel_sources.of(disk, launch.image, launch.entry) is not None for launch in plan.launches)


def program_of(device: Any, launch: Launch) -> Any:
    """The launch's code in device memory; equal code is loaded once."""
    # kernels that differ in arguments they never read, or in scratch, can have one and the same image
    writes = tuple(value in launch.writes for value in launch.arguments)
    asks = launch.scratch_bytes, launch.dynamic_shared_bytes, launch.tensor_maps, launch.numbers
    key = (device.name, launch.entry, launch.image, writes, asks)
    program = _programs.get(key)
    if program is None or program.device is not device:
        args, access = ("buffer",) * len(writes), ["write" if is_written else "read" for is_written in writes]
        if launch.numbers:
            from hcq.code import fixed_numbers

            args, access = fixed_numbers.kinds(launch.numbers), fixed_numbers.accesses(launch.numbers, access)
        program = _programs[key] = device.load(
            launch.image,
            launch.entry,
            args=args,
            scratch_bytes=launch.scratch_bytes,
            name=launch.name,
            access=access,
            sources=_sources(launch) if kernel_sources.wanted() else None,
        )
        if launch.numbers:
            fixed_numbers.fix(program, launch.numbers)
        if any(launch.tensor_maps):
            program.set_tensor_maps(launch.tensor_maps)
        if launch.dynamic_shared_bytes:
            program.dynamic_shared_bytes = launch.dynamic_shared_bytes
    return program


def _sources(launch: Launch) -> dict[str, str]:
    """What a trace keeps beside the code: what it was made from, and maps that its launches need beside arguments."""
    found = dict(kernel_sources.of(DiskCache(), launch.image, launch.entry) or {})
    if any(launch.tensor_maps):
        found["tensor_maps"] = "\n".join(launch.tensor_maps)
    return found


# -- plans as bytes: a length, a JSON header, the code objects -------------------------------------------------------


def _encode(plan: Plan) -> bytes:
    images = dict.fromkeys(launch.image for launch in plan.launches)
    number = {image: i for i, image in enumerate(images)}
    header = {
        "values": [[v.kind, v.dtype.name, v.shape, v.size_bytes, v.memory] for v in plan.values],
        "results": plan.results,
        "images": [len(image) for image in images],
        "launches": [{**vars(launch), "image": number[launch.image]} for launch in plan.launches],
    }
    import json

    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(images)


def _decode(device: str, data: bytes | None) -> Plan | None:
    """A plan from the cache; None when there is none, or something of another form."""
    if data is None:
        return None
    try:
        return _parse(device, data)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _parse(device: str, data: bytes) -> Plan:
    """Raises ValueError, LookupError and the like for anything but what `_encode` makes."""
    size = int.from_bytes(data[:8], "little")
    import json

    header = json.loads(data[8 : 8 + size])
    images = []
    at = 8 + size
    for length in _numbers(header["images"]):
        images.append(data[at : at + length])
        at += length
    if at != len(data):
        raise ValueError(f"{len(data)} bytes, not {at}")
    values = [
        Slot(
            _KINDS[kind],
            dtypes.named(dtype),
            _numbers(shape),
            *_numbers((size_bytes,)),
            *_numbers((memory,), -1),
        )
        for kind, dtype, shape, size_bytes, memory in header["values"]
    ]
    launches = [_parse_launch(fields, images, len(values)) for fields in header["launches"]]
    return Plan(device, values, launches, _numbers(header["results"], 0, len(values)))


def _parse_launch(fields: Any, images: Sequence[bytes], values: int) -> Launch:
    for name in ("arguments", "writes"):
        fields[name] = _numbers(fields[name], 0, values)
    for name in ("grid", "block"):
        fields[name] = _numbers(fields[name], 1)
        if len(fields[name]) != 3:
            raise ValueError(f"{name} {fields[name]}: expected three sizes")
    _numbers([fields[name] for name in ("scratch_bytes", "dynamic_shared_bytes", "flops", "traffic_bytes")])
    if not all(type(fields[name]) is str for name in ("name", "entry", "choice")):
        raise TypeError("expected strings")
    maps = fields["tensor_maps"]
    if type(maps) is not list or len(maps) != len(fields["arguments"]):
        raise TypeError(f"{maps!r}: expected a tensor map, or none, of each argument")
    if not all(type(words) is str for words in maps):
        raise TypeError("expected tensor maps")
    fields["tensor_maps"] = tuple(maps)
    if fields["numbers"] != []:
        from hcq.code import fixed_numbers

        fixed_numbers.check(fields["numbers"], len(maps))
    fields["numbers"] = tuple(fields["numbers"])
    (image,) = _numbers([fields["image"]], 0, len(images))
    return Launch(**{**fields, "image": images[image]})


_KINDS = {kind: kind for kind in ("input", "output", "temporary")}


def _numbers(found: Any, low: int = 0, end: float = inf) -> tuple[int, ...]:
    if type(found) not in (list, tuple) or not all(type(n) is int and low <= n < end for n in found):
        raise TypeError(f"{found!r}: expected whole numbers from {low}")
    return tuple(found)
