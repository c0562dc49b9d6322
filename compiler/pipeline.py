"""Pipeline: the stations from a kernel graph to a code object, in order and timed; imported to compile something.

In       a kernel sink of the tensor stage, a Target
Out      a `CodeObject`; the graph, the code, the time of each station and each rule applied, for who wants to see them
Changes  the records of the passes
Next     passes/, loops/heuristic.py (choose), linear/linearize.py, codegen.py (who renders and assembles)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from hcq.compiler.code_object import CodeObject
from hcq.compiler.codegen import codegen
from hcq.compiler.kernel import kernel_flops, kernel_name, kernel_traffic
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.passes.fold_identities import fold_identities
from hcq.compiler.passes.lower_movement import lower_movement
from hcq.compiler.routines import program as routine_program
from hcq.compiler.routines import routine_of
from hcq.compiler.target import Target
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Param, toposort
from hcq.ir.op import ARITHMETIC, Op
from hcq.ir.rewrite import LatePass, Notes, Pass, Trace

Show = Callable[[str, str], None]
T = TypeVar("T")


class Watch:
    """Who wants to see every station: gives each pass the notes that it takes, and is shown what was made."""

    def notes(self) -> Notes:
        """The notes of the pass that comes next."""
        return Notes()

    def made(self, station: str, what: object, seconds: float) -> None:
        """A graph, a LoopNest, a linear program, text or an object came out of a station."""


def _online() -> Pass:
    from hcq.compiler.passes.online import online

    return online


def _masked_weights() -> Pass:
    from hcq.compiler.passes.masked_weights import masked_weights

    return masked_weights


def _skip_gaps() -> Pass:
    from hcq.compiler.passes.skip_gaps import skip_gaps

    return skip_gaps


def _split_ranges() -> Pass:
    from hcq.compiler.passes.split_ranges import split_ranges

    return split_ranges


def _promote_floats() -> Pass:
    from hcq.compiler.passes.promote_floats import promote_floats

    return promote_floats


def _decompose() -> Pass:
    from hcq.compiler.passes.decompose import decompose

    return decompose


# each leaves a kernel that the verifier accepts; what each is for, and its rules: `python -m hcq.compiler`
PASSES: tuple[Pass | LatePass, ...] = (
    lower_movement,
    LatePass("online", lambda node, target: node.op is Op.REDUCE and node.arg is Op.MAX, _online),
    LatePass("masked-weights", lambda node, target: node.op is Op.EXP, _masked_weights),
    LatePass("skip-gaps", lambda node, target: node.op is Op.MOD, _skip_gaps),
    LatePass("split-ranges", lambda node, target: node.op in (Op.FLOORDIV, Op.MOD), _split_ranges),
    fold_identities,
    LatePass(
        "promote-floats",
        lambda node, target: node.dtype.is_float and node.dtype.itemsize < 4,
        _promote_floats,
    ),
    LatePass(
        "decompose", lambda node, target: node.op in ARITHMETIC and node.op not in target.native, _decompose
    ),
)


def lower(sink: Node, target: Target) -> Node:
    """The graph passes: shapes to ranges, then operations to those the target has. Raises what a pass refuses."""
    for step in PASSES:
        sink = step.run(sink, target)
    return sink


def build(
    sink: Node,
    target: Target,
    schedule: str | None = None,
    show: Show | None = None,
    trace: Trace | None = None,
    watch: Watch | None = None,
) -> CodeObject:
    """The code object of a kernel; see compile.py for the arguments, and for who asks a cache first.

    Where somebody reads the trace, every pass's graph is verified: VerifyError names the pass that broke a law.
    """
    serves = codegen(target)
    name = kernel_name(sink)
    table = _Table(watch)
    lowered = sink
    loops, choice = "", "-"
    if routine_of(sink) is not None:
        if schedule is not None:
            raise ScheduleError(f"{name}: a routine's loops are written down; no schedule applies")
        program = table.station("write", lambda: routine_program(sink, name, target))
    else:
        for step in PASSES:
            lowered = table.graph_pass(step, lowered, target, trace)
        nest = table.station("choose", lambda: _chosen(lowered, target, schedule))
        _check_copies(nest, target)
        program = table.station(
            "linearize", lambda: linearize(nest, name, target.shared_bytes, target.wave_copy_bytes)
        )
        program.params = _params(sink)
        loops, choice = f"{nest}\n\n", nest.choice
    text = table.station("render", lambda: serves.render(program, target.arch))
    image = table.station("assemble", lambda: serves.assemble(text, target, name))
    if show is not None:
        from hcq.ir import text as graph_text
        from hcq.ir.show import show_graph

        show("graph", graph_text.write(sink))
        show("ir", show_graph(lowered))
        show("code", f"{loops}{text}")
        show("passes", f"{name} for {target.name} {target.arch}\n{table}")
    return CodeObject(
        name=name,
        arch=target.arch,
        image=image,
        entry=name,
        args=("buffer",) * len(program.params),
        grid=(program.groups, 1, 1),
        block=(program.launched, 1, 1),
        scratch_bytes=program.scratch_bytes,
        dynamic_shared_bytes=program.dynamic_shared_bytes,
        tensor_maps=tuple([program.tensor_maps.get(param.index, "") for param, _ in program.params]),
        flops=kernel_flops(sink),
        traffic_bytes=kernel_traffic(sink),
        choice=choice,
    )


def _check_copies(nest: LoopNest, target: Target) -> None:
    """Raises ScheduleError where a schedule copies farther ahead than this GPU does by itself."""
    for loop, tiles in nest.pipelined.items():
        if tiles > 2 and not target.copies_ahead:
            raise ScheduleError(
                f"pipeline {loop.name} {tiles}: {target.arch} copies to shared memory through registers, 1 or 2 tiles: "
                "3 and more need global_load_lds, which gfx90a, gfx942 and gfx950 have"
            )


def _chosen(lowered: Node, target: Target, schedule: str | None) -> LoopNest:
    nest = LoopNest(lowered)
    return codegen(target).choose(nest, target) if schedule is None else nest.apply(schedule)


def _verify(graph: Node, when: str) -> None:
    from hcq.ir.verify import VerifyError, verify  # read by nobody but who debugs a pass

    try:
        verify(graph, "kernel")
    except VerifyError as law:
        raise VerifyError(f"{when}{law}") from None


def _params(sink: Node) -> list[tuple[Param, DType]]:
    """The arguments a launch passes: also those that simplification found no use for."""
    found = {n.arg.index: (n.arg, n.dtype) for n in sink.toposort() if n.op is Op.PARAM}
    return [found[index] for index in sorted(found)]


class _Table:
    """What each station of one kernel took, and what the passes among them did."""

    def __init__(self, watch: Watch | None) -> None:
        self.watch = watch
        self.rows: list[tuple[str, float, Node | None, Counter[str]]] = []

    def station(self, name: str, work: Callable[[], T]) -> T:
        before = perf_counter()
        made = work()
        self.rows.append((name, perf_counter() - before, None, Counter()))
        if self.watch is not None:
            self.watch.made(name, made, self.rows[-1][1])
        return made

    def graph_pass(self, step: Pass | LatePass, graph: Node, target: Target, trace: Trace | None) -> Node:
        notes = Notes(trace) if self.watch is None else self.watch.notes()
        made = step.run(graph, target, notes)
        self.rows.append((step.name, notes.seconds, made, notes.counts))
        if self.watch is not None:
            self.watch.made(step.name, made, notes.seconds)
        if trace is not None:
            _verify(made, f"after {step.name}, ")
        return made

    def __str__(self) -> str:
        lines = []
        for name, seconds, graph, counts in self.rows:
            nodes = "" if graph is None else f"{len(toposort((graph,)))} nodes"
            did = ", ".join([f"{rule} {count}" for rule, count in counts.most_common()])
            lines.append(f"  {name:<16}{1000 * seconds:9.2f} ms  {nodes:>11}  {did}".rstrip())
        total = sum([seconds for _, seconds, _, _ in self.rows])
        return "\n".join([*lines, f"  {'together':<16}{1000 * total:9.2f} ms"])
