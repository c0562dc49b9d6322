"""A launch on an emulated Metal GPU, for the debugger: SIMD groups, the variables of MSL, threadgroup memory.

In       what Program.interpret is given: a program, grid and block, what is bound
Out      MetalWork, MetalMoment
Changes  memory that is bound, as the kernel does
Next     metal_steps.py (how the text is run), timeline.py (who runs a launch),
         hcq/emu/metal/shader/translate.py (the text that NumPy runs), amd.py (a sister)

MSL runs as Python text, a statement of all threads at once. The debugger runs the same text with a call before each
statement. A statement of that text is what a step goes over: mostly a part of a line of MSL. Registers are variables.
State is kept between rounds of loops (metal_steps.py): a launch is run again from there.
"""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

import numpy as np

from hcq.debug.metal_steps import Run, State, Text
from hcq.debug.moment import MOST_LINES, Access, Array, Moment, Site, Standing, Work
from hcq.debug.pages import PAGE, Pages
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.metal.shader.following import FollowingMachine
from hcq.emu.metal.shader.machine import SIMD, Machine, Memory
from hcq.emu.metal.shader.program import Program
from hcq.emu.shader.checks import Checks
from hcq.errors import UsageError
from hcq.system import native

COUNTED = re.compile(r"_\d+$")  # behind the name of a variable
TELL = "tell"
INNER = ("M", "np", "returned")


class _Reach(NamedTuple):
    """A call of the machine's that reaches memory: its mask, memory and index as code; size: of each thread.

    where   the variables that the index is from
    """

    kind: str
    mask: Any
    memory: str
    index: Any
    size: int
    where: tuple[str, ...]


class _Known(NamedTuple):
    """A statement. mask: the variable that has who executes it."""

    site: Site
    mask: str
    reach: tuple[_Reach, ...]


class _Machine(Machine):
    """One that hears of each statement before it runs."""

    probe: Any = None
    work: Any = None
    pages: Any = None

    def _places(self, mask: Any, memory: Memory, kind: str, index: Any, verb: str) -> Any:
        at = super()._places(mask, memory, kind, index, verb)
        if verb == "writes" and not memory.stride:
            size = np.dtype(kind).itemsize
            addresses = at.astype(np.uint64) * np.uint64(size) + np.uint64(self.work.starts[memory.name])
            self.pages.touch(addresses, size, True)
        return at

    def tell(self, key: int, names: dict[str, Any]) -> None:
        """A statement of the text is about to run, with these variables."""
        probe = self.probe
        probe.tick += 1
        probe.done += -(-self.size // SIMD)
        if probe.tick >= probe.due or key in probe.keys:
            hidden = self.work.text.base
            probe.look(key, (self, {name: one for name, one in names.items() if name not in hidden}))


class _Following(_Machine, FollowingMachine):
    """One that also follows what nobody wrote."""


class _Bound:
    """A buffer that is bound, as a range of addresses."""

    def __init__(self, name: str, data: Array, writable: bool) -> None:
        self.name, self.data, self.writable = name, data, writable
        self.start = native.address_of(data)
        self.end = self.start + len(data)

    def reach(self, at: int, size_bytes: int, *, is_write: bool) -> None:
        """It is always up to date."""


class _Space:
    """The buffers of a launch; two may be parts of one."""

    def __init__(self, bound: list[_Bound]) -> None:
        self.ranges = tuple(sorted(bound, key=lambda one: one.start))

    def within(self, start: int, end: int) -> _Bound | None:
        """The first that has any of these addresses."""
        return next((one for one in self.ranges if one.start < end and start < one.end), None)

    def find(self, address: int) -> _Bound | None:
        """The one that holds an address."""
        return next((one for one in self.ranges if one.start <= address < one.end), None)


class MetalWork(Work):
    """A launch."""

    vendor, unit, shared_name, lanes, is_text = "metal", "SIMD group", "threadgroup memory", SIMD, True
    loads_compute = True

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        bindings: dict[int, Any],
        entry: int,
        checks: Checks | None = None,
    ) -> None:
        self.checks = checks
        self.program, self.grid, self.block, self.entry = program, grid, block, entry
        self.name, self.arch, self.source = program.kernel.name, "metal", program.source.text
        self.bindings = dict(bindings)
        self.bound = {
            index: _Bound(program.table[index].name, np.frombuffer(data, np.uint8), True)
            for index, data in bindings.items()
            if index in program.table and program.table[index].is_pointer and not isinstance(data, bytes)
        }
        self.space = _Space(_merged(list(self.bound.values())))
        self.starts = {one.name: one.start for one in self.bound.values()}
        self.text, self.known, self.parameters = _told(program)
        self._now: Run | None = None  # what may be saved

    def run(self, probe: Any, memory: Any, state: Any = None) -> None:
        space, pages = memory
        bindings = dict(self.bindings)
        for one in self.space.ranges:  # all of it, for nobody tells which bytes a statement touches
            places = np.arange(one.start, one.end, PAGE, dtype=np.uint64)
            pages.touch(places, 1, False)
            pages.touch(np.array([one.end - 1], np.uint64), 1, False)
        for index, one in self.bound.items():
            where = space.find(one.start)
            bindings[index] = where.data[one.start - where.start : one.end - where.start]

        checks = self.checks if probe.is_live else None
        of_kind: Any = _Machine
        if checks is not None and "init" in checks.words:
            of_kind = self.program.following(self.grid, self.block, checks, _Following)

        def make(name: str, groups: int, threads: int, first: int) -> Machine:
            machine: _Machine = of_kind(name, groups, threads, first)
            machine.probe, machine.work, machine.pages = probe, self, pages
            return machine

        def go(machine: Machine, *given: Any) -> None:
            if state is not None and machine.first < state.first:
                return  # these groups had ended
            self._now = made = Run(self.text, machine, given, probe.between)
            if state is not None and machine.first == state.first:
                made.restore(state)
            if checks is not None:
                self._now = None
            made.go()

        races = self.program.races(self.grid, self.block, checks)
        self.program.interpret(self.grid, self.block, bindings, races, run=go, make=make)

    def spelled(self, name: str) -> str:
        return COUNTED.sub("", name)

    def save(self) -> State | None:
        """The batch that runs, between two rounds of a loop; None while it is checked, which it is in its first run."""
        return None if self._now is None else self._now.save()

    @property
    def size(self) -> int:
        return len(self.known)

    def sites(self) -> list[Site]:
        return [one.site for one in self.known.values()]

    def moment(self, key: int, context: tuple[_Machine, dict[str, Any]]) -> MetalMoment:
        """What is about to happen."""
        return MetalMoment(self, self.known[key], *context)

    def recorder(self, space: Any, pages: Pages) -> Any:
        return space, pages

    def private(self) -> Any:
        return AddressSpace()


class MetalMoment(Moment):
    """Before a statement of all threads of a batch."""

    def __init__(self, work: MetalWork, known: _Known, machine: _Machine, names: dict[str, Any]) -> None:
        self.work: MetalWork = work
        self.known, self.machine, self.variables, self.site = known, machine, names, known.site
        mask = names.get(known.mask, True)
        self.mask = np.full(machine.size, bool(mask)) if not isinstance(mask, np.ndarray) else mask

    def _numbers(self, threads: Array) -> tuple[Array, Array]:
        """(waves, lanes) of threads of the batch."""
        own = threads % self.machine.threads
        group = self.machine.first + threads // self.machine.threads
        return group * self.work.waves_per_block + own // SIMD, own % SIMD

    @property
    def waves(self) -> Array:
        found: Array = np.unique(self._numbers(np.flatnonzero(self.mask))[0])
        return found

    def _threads(self, wave: int) -> tuple[int, int]:
        """(first thread of the batch, how many) of a SIMD group."""
        group, place = divmod(wave, self.work.waves_per_block)
        row = group - self.machine.first
        if not 0 <= row < self.machine.groups:
            raise UsageError(f"SIMD group {wave} is not resident now: its group has ended, or not begun.")
        return row * self.machine.threads + place * SIMD, min(SIMD, self.machine.threads - place * SIMD)

    def _of(self, values: Any, wave: int) -> Array:
        start, count = self._threads(wave)
        array = np.broadcast_to(np.asarray(values), (self.machine.size,))
        found = np.zeros(SIMD, array.dtype)
        found[:count] = array[start : start + count]
        return found

    def on(self, wave: int) -> Array:
        return self._of(self.mask, wave)

    def _scope(self) -> dict[str, tuple[str, Any]]:
        """The variables by the names that the source has for them, the innermost where several have one."""
        found: dict[str, tuple[str, Any]] = {}
        for name, value in self.variables.items():
            if name in INNER or isinstance(value, (Memory, Machine)) or value is None:
                continue
            if re.fullmatch(r"[mc](_\d+|0)", name) or (
                name.startswith("t_") and name not in self.work.parameters
            ):
                continue
            short = COUNTED.sub("", name)
            if isinstance(value, (list, tuple)):
                found |= {f"{short}.{axis}": (name, one) for axis, one in zip("xyzw", value)}
            else:
                found[short] = name, value
        return found

    def names(self) -> list[str]:
        return list(self._scope())

    def spelled(self, name: str) -> str:
        short = self.work.spelled(name)
        return short if self._scope().get(short, ("",))[0] == name else name

    def read(self, name: str, wave: int) -> Array:
        scope = self._scope()
        value = scope[name][1] if name in scope else self.variables.get(name)
        if value is None or isinstance(value, (Memory, Machine, list, tuple)):
            raise UsageError(f"there is no variable {name!r} here: {', '.join(self.names())}.")
        values = self._of(value, wave)
        if values.dtype == np.bool_:
            return values.astype(np.uint8)
        return values.view(f"u{values.dtype.itemsize}")

    def accesses(self) -> list[Access]:
        scope = {**self.work.program.function.__globals__, **self.variables}
        found = []
        for one in self.known.reach:
            memory = self.variables.get(one.memory)
            if not isinstance(memory, Memory) or memory.is_own:
                continue
            mask = eval(one.mask, scope)  # of the text that runs, which the emulation has written
            threads = np.flatnonzero(np.broadcast_to(np.asarray(mask, np.bool_), (self.machine.size,)))
            index = np.broadcast_to(np.asarray(eval(one.index, scope)), (self.machine.size,))[threads]
            at = index.astype(np.int64) * one.size
            if not memory.is_shared:
                at = at + native.address_of(memory.data) + self._moved(memory)
            wave, lane = self._numbers(threads)
            space = "shared" if memory.is_shared else "global"
            found.append(Access(one.kind, space, wave, lane, at.astype(np.uint64), one.size, (), one.where))
        return found

    def _moved(self, memory: Memory) -> int:
        """How far a buffer of a run again is from where the program has it."""
        bound = next((one for one in self.work.bound.values() if one.name == memory.name), None)
        return 0 if bound is None else bound.start - native.address_of(memory.data)

    def shared(self, block: int) -> Array:
        row = block - self.machine.first
        if not 0 <= row < self.machine.groups:
            raise UsageError(f"group {block} is not resident now.")
        parts = [
            one.data[row * one.stride : row * one.stride + one.size_bytes] for one in self.machine.shared
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint8)

    def local(self, wave: int, lane: int) -> Array:
        raise UsageError("a thread of Metal has no memory of its own here: all is in variables.")

    def standing(self) -> list[Standing]:
        found = []
        for mask, waits in (
            (self.mask, ""),
            (~self.mask, "the other threads: a condition is false here, or they have returned"),
        ):
            threads = np.flatnonzero(mask)
            waves = np.unique(self._numbers(threads)[0])
            lanes = np.array([self._of(mask, int(wave)) for wave in waves.tolist()], np.bool_).reshape(
                -1, SIMD
            )
            if len(waves):
                found.append(Standing(waves, lanes, self.site, waits))
        return found


def _merged(bound: list[_Bound]) -> list[_Bound]:
    """Without those that lie in others."""
    found: list[_Bound] = []
    for one in sorted(bound, key=lambda each: (each.start, -each.end)):
        if not found or one.end > found[-1].end:
            if found and one.start < found[-1].end:  # they overlap: what is behind the first is its own
                one = _Bound(one.name, one.data[found[-1].end - one.start :], True)
            found.append(one)
    return found


def _told(program: Program) -> tuple[Text, dict[int, _Known], set[str]]:
    """The text of a kernel with a call before each statement, what is known of each, names of parameters."""
    tree = ast.parse(program.text)
    known: dict[int, _Known] = {}
    parameters: set[str] = set()
    for function in tree.body:
        assert isinstance(function, ast.FunctionDef)
        parameters |= {one.arg for one in function.args.args}
        function.body = _with_calls(function.body, program, known)
    ast.fix_missing_locations(tree)
    names = dict(program.function.__globals__)
    exec(compile(tree, program.file_name, "exec"), names)  # what the emulation has written itself
    kernel = tree.body[-1]
    assert isinstance(kernel, ast.FunctionDef)
    return Text(kernel, program.file_name, names), known, parameters


def _with_calls(body: list[ast.stmt], program: Program, known: dict[int, _Known]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for one in body:
        line, mask = program.places[one.lineno - 1]
        if line and not isinstance(one, (ast.Pass, ast.Break, ast.Continue)):
            # several statements of a line: as of PTX, its number is in the low bits
            key = next(key for key in range(line, 1 << 62, MOST_LINES + 1) if key not in known)
            known[key] = _known(program, one, key, line, mask)
            call = ast.Expr(
                ast.Call(
                    ast.Attribute(ast.Name("M", ast.Load()), TELL, ast.Load()),
                    [ast.Constant(key), ast.Call(ast.Name("locals", ast.Load()), [], [])],
                    [],
                )
            )
            found.append(ast.copy_location(call, one))
        for name in ("body", "orelse"):
            inner = getattr(one, name, None)
            if inner:
                setattr(one, name, _with_calls(inner, program, known))
        found.append(one)
    return found


def _known(program: Program, statement: ast.stmt, key: int, line: int, mask: str) -> _Known:
    head: Any = statement.test if isinstance(statement, (ast.If, ast.While)) else statement
    reach = tuple(
        one for one in (_reach(node) for node in ast.walk(head) if isinstance(node, ast.Call)) if one
    )
    hidden: set[int] = set()  # names that only say where, or who
    for node in ast.walk(head):
        if isinstance(node, ast.Call) and _is_access(node):
            for inner in node.args[:4]:
                hidden |= {id(one) for one in ast.walk(inner)}
    names = [node for node in ast.walk(head) if isinstance(node, ast.Name) and id(node) not in hidden]
    masks = {name for _, name in program.places}
    read = [one.id for one in names if isinstance(one.ctx, ast.Load) and COUNTED.search(one.id)]
    reads = [one for one in read if one not in masks]
    writes = [one.id for one in names if isinstance(one.ctx, ast.Store)]
    text = program.source.line(line).strip()
    kinds = [one.kind for one in reach]
    kind = next((one for one in ("store", "atomic") if one in kinds), "load" if kinds else "")
    if ".barrier(" in ast.unparse(head):
        kind = "barrier"
    site = Site(
        key, text, f"MSL line {line}", tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes)), kind
    )
    return _Known(site, mask, reach)


def _is_access(node: ast.Call) -> bool:
    called = node.func
    return (
        isinstance(called, ast.Attribute)
        and (called.attr.startswith(("load", "store")) or called.attr == "atomic")
        and len(node.args) >= 4
    )


def _reach(node: ast.Call) -> _Reach | None:
    if (
        not _is_access(node)
        or not isinstance(node.args[1], ast.Name)
        or not isinstance(node.args[2], ast.Constant)
    ):
        return None
    assert isinstance(node.func, ast.Attribute)
    kind = "store" if node.func.attr.startswith("store") else "load"
    if node.func.attr == "atomic" and not (
        isinstance(node.args[4], ast.Constant) and node.args[4].value == "load"
    ):
        kind = "store" if getattr(node.args[4], "value", "") == "store" else "atomic"
    size = np.dtype(str(node.args[2].value)).itemsize

    def code(part: ast.expr) -> Any:
        return compile(ast.fix_missing_locations(ast.Expression(part)), "<access>", "eval")

    names = [one.id for one in ast.walk(node.args[3]) if isinstance(one, ast.Name) and COUNTED.search(one.id)]
    where = tuple(dict.fromkeys(names))
    return _Reach(kind, code(node.args[0]), node.args[1].id, code(node.args[3]), size, where)
