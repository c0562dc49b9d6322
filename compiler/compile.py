"""Compile: the road from a kernel graph to a code object, and the caches beside it.

In       a kernel sink of the tensor stage, a Target
Out      a `CodeObject`: image, entry, launch shape, scratch, counts
Changes  the memory cache here, and the object cache it is given
Next     lower_movement.py, decompose.py, linear.py, backend.py: the stations

A kernel is looked up before any work is done: first by structure in memory, then on disk under a digest of structure,
target, toolchain and this compiler's own source. An object found there costs no LLVM import.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from hcq.compiler.kernel import kernel_flops, kernel_key, kernel_name, kernel_traffic
from hcq.compiler.target import Target
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Param
from hcq.ir.op import Op

Show = Callable[[str, str], None]
CACHE_KIND = "kernel"


class ObjectCache(Protocol):
    """Where finished kernels are kept between processes."""

    def get(self, kind: str, key: bytes | str) -> bytes | None: ...
    def put(self, kind: str, key: bytes | str, data: bytes) -> Any: ...


@dataclass(frozen=True)
class CodeObject:
    """A compiled kernel: what a device needs to load and launch it, and what people ask about it."""

    name: str
    arch: str
    image: bytes
    entry: str
    args: tuple[str, ...]  # kinds, in order: "buffer"
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scratch_bytes: int  # per worker
    flops: int
    traffic_bytes: int
    choice: str  # the schedule, replayable

    def to_bytes(self) -> bytes:
        """One line of JSON, then the image."""
        facts = asdict(self)
        del facts["image"]
        return json.dumps(facts, sort_keys=True).encode() + b"\n" + self.image

    @classmethod
    def from_bytes(cls, data: bytes) -> CodeObject:
        """The inverse of `to_bytes`. Raises ValueError for anything else."""
        head, _, image = data.partition(b"\n")
        try:
            facts = json.loads(head)
            for name in ("args", "grid", "block"):
                facts[name] = tuple(facts[name])
            made = cls(image=image, **facts)
            made._check()
            return made
        except (KeyError, TypeError, ValueError, RecursionError) as problem:
            raise ValueError(f"not a stored code object: {problem}") from problem

    def _check(self) -> None:
        """Raises TypeError when a field is not what its annotation says."""
        words = (self.name, self.arch, self.entry, self.choice, *self.args)
        numbers = (*self.grid, *self.block, self.scratch_bytes, self.flops, self.traffic_bytes)
        if not all(type(word) is str for word in words) or not all(type(number) is int for number in numbers):
            raise TypeError("a field of the wrong type")
        if len(self.grid) != 3 or len(self.block) != 3:
            raise TypeError("a grid and a block have three sizes")


MAX_KEPT = 1024  # objects in memory; beyond, the oldest go (they are still on disk)

_memory: dict[tuple[str, str, str | None], CodeObject] = {}


def compile_kernel(
    sink: Node,
    target: Target,
    cache: ObjectCache | None = None,
    show: Show | None = None,
    schedule: str | None = None,
) -> CodeObject:
    """The code object of a kernel.

    sink      SINK(STORE(target, value), ...) of the tensor stage
    cache     looked up before, filled after; None: memory only
    show      called with ("ir", text) and ("code", text) when something is compiled or was asked to be seen
    schedule  transforms to replay instead of the heuristic's choice
    Raises    ValueError and its kin (ScheduleError, RenderError) for a kernel or schedule that cannot be compiled
    """
    structure = kernel_key(sink)
    key = (structure, target.key, schedule)
    found = _memory.get(key)
    if found is not None and show is None:
        return found
    stored_key = _stored_key(structure, target, schedule) if cache is not None else ""
    if found is None and cache is not None and show is None:
        data = cache.get(CACHE_KIND, stored_key)
        if data is not None:
            try:
                return _keep(key, CodeObject.from_bytes(data))
            except ValueError:
                pass  # written by something else under our name: compile, and write it anew
    made = _keep(key, _compile(sink, target, show, schedule))
    if cache is not None:
        cache.put(CACHE_KIND, stored_key, made.to_bytes())
    return made


def _keep(key: tuple[str, str, str | None], made: CodeObject) -> CodeObject:
    while len(_memory) >= MAX_KEPT:
        _memory.pop(next(iter(_memory), key), None)
    _memory[key] = made
    return made


def forget() -> None:
    """Empty the memory cache: for tests and for measuring."""
    _memory.clear()


def lower(sink: Node, target: Target) -> Node:
    """The graph passes: shapes to ranges, then operations to those the target has."""
    for _, _, run in PASSES:
        sink = run(sink, target)
    return sink


def _lower_movement(sink: Node, target: Target) -> Node:
    from hcq.compiler.lower_movement import lower_movement

    return lower_movement(sink)


def _skip_gaps(sink: Node, target: Target) -> Node:
    from hcq.compiler.skip_gaps import skip_gaps

    return skip_gaps(sink)


def _split_ranges(sink: Node, target: Target) -> Node:
    from hcq.compiler.split_ranges import split_ranges

    return split_ranges(sink)


def _fold_identities(sink: Node, target: Target) -> Node:
    from hcq.compiler.fold_identities import fold_identities

    return fold_identities.run(sink)


def _decompose(sink: Node, target: Target) -> Node:
    from hcq.compiler.decompose import decompose

    return decompose(sink, target.native, target.casts)


# name, why it is there, what it does; each leaves a kernel the verifier accepts
PASSES: list[tuple[str, str, Callable[[Node, Target], Node]]] = [
    (
        "lower-movement",
        "views become index arithmetic: they cost nothing when the kernel runs",
        _lower_movement,
    ),
    ("skip-gaps", "sums over strided windows visit only the places that are not zero", _skip_gaps),
    ("split-ranges", "axes that a view merged are counted by loops, not divided apart", _split_ranges),
    ("fold-identities", "what changes nothing is not computed", _fold_identities),
    ("decompose", "operations that the target lacks become ones that it has", _decompose),
]


def _compile(sink: Node, target: Target, show: Show | None, schedule: str | None) -> CodeObject:
    from hcq.compiler.backend import backend
    from hcq.compiler.linear import linearize
    from hcq.compiler.loop_nest import LoopNest

    serves = backend(target.name)
    name = kernel_name(sink)
    lowered = lower(sink, target)
    nest = LoopNest(lowered)
    if schedule is None:
        serves.choose(nest, target)
    else:
        nest.apply(schedule)
    program = linearize(nest, name)
    program.params = _params(sink)
    text = serves.render(program)
    if show is not None:
        from hcq.ir.show import show_graph

        show("ir", show_graph(lowered))
        show("code", f"{nest}\n\n{text}")
    image = serves.assemble(text, target, name)
    return CodeObject(
        name=name,
        arch=target.arch,
        image=image,
        entry=name,
        args=("buffer",) * len(program.params),
        grid=serves.grid(program),
        block=serves.block,
        scratch_bytes=program.scratch_bytes,
        flops=kernel_flops(sink),
        traffic_bytes=kernel_traffic(sink),
        choice=nest.choice,
    )


def _params(sink: Node) -> list[tuple[Param, DType]]:
    """The arguments a launch passes: also those that simplification found no use for."""
    found = {n.arg.index: (n.arg, n.dtype) for n in sink.toposort() if n.op is Op.PARAM}
    return [found[index] for index in sorted(found)]


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
