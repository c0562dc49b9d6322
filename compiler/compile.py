"""Compile: a kernel's code object, from memory, from disk, or from the pipeline.

In       a kernel sink of the tensor stage, a Target
Out      a `CodeObject`: image, entry, launch shape, scratch, counts
Changes  the memory cache here, and the object cache it is given
Next     pipeline.py (how one is made), code_object.py (what it is), parallel.py (many at a time)

A kernel is looked up before any work is done: first by structure in memory, then on disk under a digest of structure,
target, toolchain and this compiler's own source. An object found there costs no import of the pipeline, nor of LLVM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from hcq.compiler.code_object import CodeObject
from hcq.compiler.kernel import kernel_key
from hcq.compiler.target import Target
from hcq.ir.node import Node
from hcq.ir.op import Op

Show = Callable[[str, str], None]
CACHE_KIND = "kernel"
# of a schedule that another version found: what no transform refuses may not be what a later station expects
REFUSALS = (ValueError, LookupError, TypeError, AssertionError)
ENOUGH = 6  # kernels: fewer are done before other processes have begun
NO_SCHEDULES: Mapping[str, str] = {}


class ObjectCache(Protocol):
    """Where finished kernels are kept between processes."""

    def get(self, kind: str, key: bytes | str) -> bytes | None:
        """The bytes kept under a key; None where there are none."""

    def put(self, kind: str, key: bytes | str, data: bytes) -> Any:
        """Keep bytes under a key, as well as that works: nothing is raised where it does not."""


MAX_KEPT = 1024  # objects in memory; beyond, the oldest go (they are still on disk)

_memory: dict[tuple[str, str, str | None], CodeObject] = {}


def compile_kernel(
    sink: Node,
    target: Target,
    cache: ObjectCache | None = None,
    show: Show | None = None,
    schedule: str | None = None,
    trace: Callable[[str], None] | None = None,
) -> CodeObject:
    """The code object of a kernel.

    sink      SINK(STORE(target, value), ...) of the tensor stage
    cache     looked up before, filled after; None: memory only
    show      called with "graph", "ir", "code", "passes" and the text of each; who wants to see is served by no cache
    schedule  transforms to replay instead of the heuristic's choice
    trace     called with a line for every rule that a pass applies
    Raises    ValueError (ScheduleError, RenderError, ...) for a kernel or schedule that cannot be compiled
    """
    structure = kernel_key(sink)
    key = (structure, target.key, schedule)
    is_watched = show is not None or trace is not None
    found = None if is_watched else _memory.get(key)
    if found is not None:
        return found
    stored_key = _stored_key(structure, target, schedule) if cache is not None else ""
    data = None if cache is None or is_watched else cache.get(CACHE_KIND, stored_key)
    if data is not None:
        try:
            return _keep(key, CodeObject.from_bytes(data))
        except ValueError:
            pass  # written by something else under our name: compile, and write it anew
    from hcq.compiler.pipeline import build  # who finds its kernels in a cache never pays for this

    made = _keep(key, build(sink, target, schedule, show, trace))
    if cache is not None:
        cache.put(CACHE_KIND, stored_key, made.to_bytes())
    return made


def compile_kernels(
    sinks: Sequence[Node],
    target: Target,
    cache: ObjectCache | None = None,
    workers: int = 1,
    schedules: Mapping[str, str] = NO_SCHEDULES,
) -> list[CodeObject]:
    """The code objects of several kernels, as `compile_known` makes each.

    workers    processes that compile at a time, when there is much to do
    schedules  kernel's key -> the schedule that was found for it
    """
    wanted = {kernel_key(sink): sink for sink in sinks}
    missing = [
        (key, sink, schedules.get(key))
        for key, sink in wanted.items()
        if not _is_known(key, target, cache, schedules.get(key))
    ]
    if len(missing) >= ENOUGH and workers > 1:
        from hcq.compiler import parallel

        # long ones first, so that nobody waits for one that was begun last
        missing.sort(key=lambda entry: _length(entry[1]), reverse=True)
        jobs = [lambda sink=sink, text=text: _build(sink, target, text) for _, sink, text in missing]  # type: ignore[misc]
        for (key, _, text), data in zip(missing, parallel.run(jobs, workers)):
            if not data:
                continue
            _keep((key, target.key, text), CodeObject.from_bytes(data))
            if cache is not None:
                cache.put(CACHE_KIND, _stored_key(key, target, text), data)
    return [compile_known(sink, target, cache, schedules) for sink in sinks]


def compile_known(
    sink: Node,
    target: Target,
    cache: ObjectCache | None = None,
    schedules: Mapping[str, str] = NO_SCHEDULES,
    show: Show | None = None,
    trace: Callable[[str], None] | None = None,
) -> CodeObject:
    """`compile_kernel` with the schedule that was found for the kernel, or the heuristic's.

    schedules  kernel's key -> schedule; one that does not apply, for it was found by another version, counts as none
    """
    schedule = schedules.get(kernel_key(sink)) if schedules else None
    if schedule is not None:
        try:
            return compile_kernel(sink, target, cache, show, schedule, trace)
        except REFUSALS:
            pass
    return compile_kernel(sink, target, cache, show, None, trace)


def _build(sink: Node, target: Target, schedule: str | None) -> bytes:
    """A code object's bytes; none for a schedule that does not apply."""
    from hcq.compiler.pipeline import build

    try:
        return build(sink, target, schedule).to_bytes()
    except REFUSALS:
        if schedule is None:
            raise
        return b""


def _is_known(structure: str, target: Target, cache: ObjectCache | None, schedule: str | None) -> bool:
    """Whether a kernel is in memory, as it is afterwards when it was on disk."""
    key = (structure, target.key, schedule)
    if key in _memory:
        return True
    data = None if cache is None else cache.get(CACHE_KIND, _stored_key(structure, target, schedule))
    if data is None:
        return False
    try:
        _keep(key, CodeObject.from_bytes(data))
    except ValueError:
        return False
    return True


def _length(sink: Node) -> int:
    """How long a kernel takes to compile, as a number to sort by: products are unrolled most."""
    nodes = sink.toposort()
    return len(nodes) + 1000 * sum(len(node.arg[1]) for node in nodes if node.op is Op.REDUCE_AXIS)


def _keep(key: tuple[str, str, str | None], made: CodeObject) -> CodeObject:
    while len(_memory) >= MAX_KEPT:
        _memory.pop(next(iter(_memory), key), None)
    _memory[key] = made
    return made


def forget() -> None:
    """Empty the memory cache: for tests and for measuring."""
    _memory.clear()


def _stored_key(structure: str, target: Target, schedule: str | None) -> str:
    words = [structure, target.name, target.arch, target.key, _toolchain(), source_digest(), schedule or ""]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


@lru_cache
def _toolchain() -> str:
    from hcq.compiler.assemble.llvm_cpu import toolchain_version

    return toolchain_version()


@lru_cache
def source_digest() -> str:
    """A digest of the compiler's own source files: editing a pass retires every stored object."""
    digest = hashlib.sha256()
    here = Path(__file__).resolve().parent
    ir = here.parent / "ir"
    for folder in (here, ir):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder.parent).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
