"""From a launch description to the shader core: is the launch possible, which kernel is it, what are its parameters?

In       a QMD, the state of the compute engine that launched it, the address space
Out      the grid has run; LaunchError, KernelError, HungKernel or MmuFault when it cannot
Changes  what the kernel changes
Next     compute_processor.py (who calls), launch_limits.py (what no launch may ask for), code.py (the kernel at an
         address), shader/run.py (who runs it)
Source   clc6c0qmd.h, clcbc0qmd.h, clcec0qmd.h; constant bank 0 as SASS of ptxas reads it

What hardware would take from constant bank 0 is read there and nowhere else. What the compiled code would read there
and the interpreter does not need (sizes, windows, the stack) is compared with what the QMD and the channel say.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np

from hcq import backends, config
from hcq.code.kernel_text import FindText, KernelText
from hcq.emu.nv.bank0 import BANKS, spots_of
from hcq.emu.nv.caches import CachedView, DataCache
from hcq.emu.nv.code import CONSTANTS, WARP_EXCEPTION, Code, is_lone_exit, load
from hcq.emu.nv.errors import (
    ILLEGAL,
    MISALIGNED,
    OUT_OF_RANGE,
    WRONG_SPACE,
    Access,
    ChannelError,
    FaultType,
    HungKernel,
    KernelError,
    LaunchError,
    MmuFault,
)
from hcq.emu.nv.launch_limits import block_of, check_launch, cluster_of, grid_of, local_memory_bytes
from hcq.emu.nv.launch_plans import Plan, Plans, Split, without
from hcq.emu.nv.memory import View
from hcq.emu.nv.shader import register_estimate
from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.checks import additions_of
from hcq.emu.nv.shader.counters import counted
from hcq.emu.nv.shader.device_heap import Heap
from hcq.emu.nv.shader.errors import (
    Deadlock,
    Interrupted,
    KernelFault,
    MisalignedAccess,
    PageFault,
    StepLimit,
    Trap,
)
from hcq.emu.nv.shader.flow import blocks_of
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.opcodes import Addition
from hcq.emu.nv.shader.run import Kernel, Report
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.nv.spec import SMS_PER_TPC, Chip, Spec
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.residency import Needs, look
from hcq.emu.shader.schedule import Schedules
from hcq.emu.shader.traffic import LEAST_STEPS, Tally
from hcq.emu.shader.unowned_memory import Gaps
from hcq.errors import UsageError
from hcq.events import kernel_debug, stray_accesses, waves
from hcq.events.kernel_faults import Site
from hcq.events.stray_accesses import Stray
from hcq.nv.abi.image import DESCRIPTOR_BYTES
from hcq.nv.abi.qmd import Qmd
from hcq.performance import counters

THREADS = "GRAPHICS GPC0 GPCCLIENT_T1_0"
WARP_ERRORS = ((MisalignedAccess, MISALIGNED), (PageFault, OUT_OF_RANGE))
CODE_ALIGNMENT = 128
CODE_BYTES = 16  # of one instruction
CONSTANT_BANKS = range(8)
RESERVED_SHARED_BYTES = 0x400
SHARED_WINDOW_BYTES, LOW_SHARED_WINDOW_BYTES, LOCAL_WINDOW_BYTES = 1 << 32, 1 << 24, 1 << 24
STACK_TOP = (16 << 20) - 0x240
MAX_CACHED = 1 << 12  # entries of the caches for code and for constant banks


class Windows(NamedTuple):
    """What a channel has said: where the generic windows begin; where local memory is, how much of it a TPC has, for
    how many of them, and for how many GPCs with several TPCs and with one (0: not said)."""

    shared: int
    local: int
    local_memory: int
    local_bytes_per_tpc: int
    tpcs: int = 0
    plural_gpcs: int = 0
    singleton_gpcs: int = 0


PARAM_READERS = ("cvta.param", "cvta.to.param", "isspacep.param")
CONST_READERS = ("cvta.const", "cvta.to.const", "isspacep.const", "isspacep.global")
COOPERATIVE_BYTES = 288  # of the slot, as cooperative_groups/details/memory.h demands


class Guarded:
    """Memory as it is, whose stores are looked at first. found: the first into a gap, and how many there were."""

    def __init__(self, memory: Memory, gaps: Gaps, program: int) -> None:
        self.gaps, self.program = gaps, program
        self.load, self._store, self.places_of = memory.load, memory.store, memory.places_of
        self.memory = memory
        self.found: Stray | None = None

    @property
    def heap(self) -> Heap:
        """As Memory.heap."""
        return self.memory.heap

    def store(self, addresses: Lanes, values: Lanes) -> None:
        """As Memory.store."""
        size = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
        outside = np.flatnonzero(self.gaps.reached(addresses, size))
        if len(outside) and self.found is None:
            address = int(addresses[outside[0]])
            self.found = Stray(self.program, "", self.program, address, size, -1, "", len(outside))
        elif len(outside) and self.found is not None:
            self.found = self.found._replace(times=self.found.times + len(outside))
        self._store(addresses, values)


class Shader:
    """The shader cores of one GPU, and what their caches hold: instructions by address, constant banks by address."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.chip = spec, spec.chip
        self.code: dict[tuple[int, int, tuple[Addition, ...]], tuple[bytes, Code]] = {}
        self.constants: dict[tuple[int, int], bytes] = {}
        self.data = DataCache() if spec.has_caches else None
        self.schedules = Schedules(spec.seed)
        self.plans = Plans()
        self._find_text: FindText | None = None
        self._fine_windows: tuple[object, Windows] | None = None  # none is mapped inside of them

    def invalidate_code(self) -> None:
        """Read kernels from memory again."""
        self.code.clear()

    def invalidate_constants(self) -> None:
        """Read constant banks from memory again."""
        self.constants.clear()

    def invalidate_data(self) -> None:
        """Read data from memory again, where caches are emulated."""
        if self.data is not None:
            self.data.invalidate()

    def run(
        self, read: Split, view: View, windows: Windows, interrupted: Callable[[], bool], pid: int = 0
    ) -> None:
        """Run a grid to its end.

        interrupted   asked from time to time; when it says yes, the grid ends
        pid           whose it is
        """
        qmd = read.qmd
        if qmd.value("invalidate_instruction_cache"):
            self.invalidate_code()
        if qmd.value("invalidate_shader_constant_cache"):
            self.invalidate_constants()
        if qmd.value("invalidate_shader_data_cache"):
            self.invalidate_data()
        counts = counters.is_wanted()
        program = qmd.value("program_address")
        checks = Checks.of_launch(pid, program)
        plan, bank = self._plan(read, view, windows, additions_of(checks) + (counted,) * counts, pid)
        kernel, grid, block, together = plan.code.kernel, plan.grid, plan.block, plan.together
        self._check_local_memory(qmd, view, windows)
        params = bank[plan.param_at : plan.param_at + kernel.param_bytes]
        memory = view if self.data is None else self.data.over(view)
        memory.take_missed()
        if together:
            registers, shared = qmd.value("register_count"), qmd.value("shared_memory_size")
            units = SMS_PER_TPC * sum(self.chip.part.tpcs)
            needs = Needs(self.chip.arch, prod(grid), block, WARP, registers, shared, units)
            look(checks, needs, Site("waits for all", kernel.function.name, kernel.function.line))
        sample = counters.sample() if counts and not together else 0
        is_guarded = pid == os.getpid() and not (
            checks is not None and checks.known and "memory" in checks.words
        )
        known = stray_accesses.gaps() if is_guarded else []
        guarded = Guarded(memory, Gaps(known), program) if known else None
        tally = tally_of(self.chip, qmd, kernel, sample, plan.has_code) if counts else None
        debugger = kernel_debug.debugger
        run = functools.partial(
            kernel.run if debugger is None else functools.partial(debugger.run_nv, kernel, program, memory),
            grid,
            block,
            memory if guarded is None else guarded,
            params,
            dynamic_shared_bytes=plan.dynamic_bytes,
            shared_window=windows.shared,
            local_window=windows.local,
            interrupted=interrupted,
            specials=plan.envregs,
            together=together,
            checks=checks,
            schedule=self.schedules.of_launch(grid, block),
            cluster=plan.cluster,
        )
        try:
            with waves.running(pid, program, kernel.function.name) as running:
                report = run(step_limit=self.spec.step_limit, tally=tally, sample=sample, running=running)
            if tally is not None:
                self._look_at_more(run, report, tally)
                counters.tell(pid, tally.end())
        except (KernelFault, UsageError) as error:
            end = stopped(error, memory, block)
            if isinstance(error, KernelFault) and not isinstance(error, Interrupted):
                waves.stopped(pid, stop_of(program, kernel, error, end))
            raise end from None
        finally:
            if checks is not None:
                checks.tell()
            if guarded is not None and guarded.found is not None:
                stray_accesses.tell(pid, guarded.found)
            if isinstance(memory, CachedView):
                memory.end()

    def _look_at_more(self, run: Callable[..., Report], report: Report, tally: Tally) -> None:
        """After a sample of blocks: the first instructions of as many as the chip holds, for what they share."""
        held = tally.held()
        if held is None:
            return
        of_block = report.steps // report.batches
        limit = max(of_block * report.blocks // held.record.blocks, min(of_block, LEAST_STEPS))
        try:
            run(step_limit=limit, tally=held, sample=held.record.blocks, batch_lanes=1 << 40)
        except Interrupted:
            raise
        except KernelFault:  # most often that the limit is reached; what they read is wrong anyway
            pass
        tally.learn(held)

    # ------------------------------------------------------------ what it does

    def _plan(
        self, read: Split, view: View, windows: Windows, additions: tuple[Addition, ...], pid: int
    ) -> tuple[Plan, bytes]:
        """What a launch does, and constant bank 0. Raises LaunchError, KernelError and others for an impossible one."""
        qmd, key = read.qmd, (view.table.number, windows, additions)
        known = self.plans.find(read.common, *key)
        if known is None:
            check_launch(self.chip, qmd)
        program = qmd.value("program_address")
        # zeros stand for the code where there is only PTX
        code, has_code = self._code(view, program, additions, functools.partial(self._text, qmd, view, pid))
        kernel = code.kernel
        needs_bank = bool(qmd.value("constant_buffer_valid_0")) or not is_lone_exit(kernel)
        bank = self._bank0(view, qmd) if needs_bank else b""
        self._check_windows(view, windows, program)
        if known is not None and known.suits(code, has_code, bank, qmd.value("constant_buffer_addr_0")):
            return known, bank
        if needs_bank:
            check_bank0(self.chip, qmd, code, bank, windows)
        if has_code:
            check_constants(qmd, code)
        dynamic = self._shared(qmd, kernel, program)
        at = self.chip.param_offset_of(kernel.param_bytes)
        if needs_bank and at + kernel.param_bytes > len(bank):
            raise LaunchError(
                f"Graphics Exception: constant bank 0 has {len(bank):#x} bytes; the kernel reads "
                f"{kernel.param_bytes} bytes of parameters at {at:#x}"
            )
        envregs = envregs_of(qmd, bank)
        # a cooperative grid's blocks are given an address to meet at
        together = bool(envregs["envreg1"] | envregs["envreg2"])
        spots = spots_of(BANKS[qmd.version], at, kernel.param_bytes)
        shape = grid_of(qmd), block_of(qmd), cluster_of(qmd)
        made = Plan(
            read.common,
            code,
            has_code,
            *shape,
            dynamic,
            at,
            envregs,
            together,
            spots,
            *without(bank, at, spots),
        )
        self.plans.keep(made, *key)
        return made, bank

    # ------------------------------------------------------------ the kernel

    def _text(self, qmd: Qmd, view: View, pid: int) -> KernelText | None:
        """What the machine code of a launch was made from, where a cubin of its process says it."""

        def read(va: int, size_bytes: int) -> bytes:
            try:
                return view.read(va, size_bytes, CONSTANTS)
            except MmuFault:
                return b""

        def bank(number: int) -> int:
            if number not in CONSTANT_BANKS or not qmd.value(f"constant_buffer_valid_{number}"):
                return 0
            return qmd.value(f"constant_buffer_addr_{number}")

        if self._find_text is None:
            place = backends.of("NV").texts
            self._find_text = backends.load(place)(config.current().emu_ptx)
        return self._find_text(pid, self.chip.arch, qmd.value("program_address"), read, bank)

    def _code(
        self,
        view: View,
        program: int,
        additions: tuple[Addition, ...],
        search: Callable[[], KernelText | None],
    ) -> tuple[Code, bool]:
        """The kernel at an address, through the instruction cache: code that changed needs an invalidation.

        Returns it, and whether there is machine code, too
        """
        if program % CODE_ALIGNMENT:
            raise LaunchError(
                f"Graphics SKEDCHECK: program address {program:#x} is no multiple of {CODE_ALIGNMENT}"
            )
        has_code = any(view.read(program, CODE_BYTES, CONSTANTS))
        raw = view.read(program - DESCRIPTOR_BYTES, DESCRIPTOR_BYTES, CONSTANTS)
        key = view.table.number, program, additions
        known = self.code.get(key)
        if known is not None:
            if known[0] != raw:
                raise KernelError(
                    f"{WARP_EXCEPTION}: the code at {program:#x} was replaced, and the instruction cache "
                    "still holds the old one: INVALIDATE_SHADER_CACHES was not sent"
                )
            return known[1], has_code
        code = load(view, raw, program, self.chip, additions, search)
        if len(self.code) > MAX_CACHED:
            self.code.clear()
        self.code[key] = raw, code
        return code, has_code

    # ------------------------------------------------------------ constant bank 0

    def _bank0(self, view: View, qmd: Qmd) -> bytes:
        """Constant bank 0, through the constant cache: a bank that changed needs an invalidation."""
        if not qmd.value("constant_buffer_valid_0"):
            raise LaunchError("Graphics Exception: constant bank 0 is not valid in the QMD")
        va, size = qmd.value("constant_buffer_addr_0"), qmd.value("constant_buffer_size_0")
        data = view.read(va, size, CONSTANTS)
        key = view.table.number, va
        held = self.constants.get(key)
        if held is not None and held != data and not qmd.value("constant_buffer_invalidate_0"):
            raise LaunchError(
                f"Graphics Exception: constant bank 0 at {va:#x} was written again, and the constant cache still holds "
                "what it was: neither the QMD's CONSTANT_BUFFER_INVALIDATE nor INVALIDATE_SHADER_CACHES was sent"
            )
        if len(self.constants) > MAX_CACHED:
            self.constants.clear()
        self.constants[key] = data
        return data

    # ------------------------------------------------------------ shared memory and windows

    def _shared(self, qmd: Qmd, kernel: Kernel, program: int) -> int:
        """A block's dynamic shared memory: what the QMD gives beyond the reserved part and the kernel's own."""
        given, own = qmd.value("shared_memory_size"), kernel.static_shared_bytes
        if not given and not own:
            return 0
        if given < RESERVED_SHARED_BYTES + own:
            raise KernelError(
                f"{WARP_EXCEPTION}: Out Of Range Shared Address: the QMD gives "
                f"{given} bytes; the kernel has {own} of its own and the system reserves {RESERVED_SHARED_BYTES}",
                warp_error=OUT_OF_RANGE,
            )
        return given - RESERVED_SHARED_BYTES - own

    def _check_windows(self, view: View, windows: Windows, program: int) -> None:
        """The generic windows that the channel set: real memory inside them cannot be reached."""
        if (
            self._fine_windows is not None
            and self._fine_windows[0] is view.index
            and self._fine_windows[1] == windows
        ):
            return
        shared_bytes = LOW_SHARED_WINDOW_BYTES
        if self.chip.has_shared_window_of_4_gib:
            shared_bytes = SHARED_WINDOW_BYTES
            if windows.shared & 0xFFFFFFFF:
                raise LaunchError(
                    f"Graphics Exception: the shared window {windows.shared:#x} is not aligned to 4 GiB"
                )
        for what, va, size in (
            ("shared", windows.shared, shared_bytes),
            ("local", windows.local, LOCAL_WINDOW_BYTES),
        ):
            if not va:
                raise LaunchError(
                    f"Graphics Exception: SET_SHADER_{what.upper()}_MEMORY_WINDOW was never sent on this channel"
                )
            inside = view.overlaps(va, size)
            if inside is not None:
                raise KernelError(
                    f"{WARP_EXCEPTION}: Invalid Address Space: [{inside.start:#x}, "
                    f"{inside.end:#x}) is mapped inside the {what} window at {va:#x}",
                    inside.start,
                    warp_error=WRONG_SPACE,
                )
        self._fine_windows = view.index, windows

    def _check_local_memory(self, qmd: Qmd, view: View, windows: Windows) -> None:
        """Raises LaunchError when the channel was not given the local memory that a QMD asks for."""
        per_thread = qmd.value("shader_local_memory_low_size") + qmd.value("shader_local_memory_high_size")
        if not per_thread:
            return
        needed = local_memory_bytes(per_thread, self.chip.warps_per_sm)
        if windows.local_bytes_per_tpc < needed:
            raise LaunchError(
                f"Graphics SKEDCHECK05_LOCAL_MEMORY_TOTAL_SIZE: {per_thread} bytes of local memory per thread need "
                f"{needed:#x} bytes per TPC; SET_SHADER_LOCAL_MEMORY_NON_THROTTLED gave "
                f"{windows.local_bytes_per_tpc:#x}"
            )
        check_local_counts(windows, self.chip)
        size = windows.local_bytes_per_tpc * self.chip.tpcs
        for _ in view.spans(windows.local_memory, size, Access.WRITE, THREADS):
            pass


def check_local_counts(windows: Windows, chip: Chip) -> None:
    """Local memory is given to as many units as SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C says: fewer than there are
    would leave some without. The counts of GPCs may be left out; that they are what their names say is our inference.
    """
    of_gpcs = chip.part.tpcs
    several = sum(count > 1 for count in of_gpcs)
    said = windows.plural_gpcs or windows.singleton_gpcs
    for name, given, least in (
        ("MAX_SM_COUNT", windows.tpcs, chip.tpcs),
        ("MAX_PLURAL_TPC_GPC_COUNT", windows.plural_gpcs, several if said else 0),
        ("MAX_SINGLETON_TPC_GPC_COUNT", windows.singleton_gpcs, len(of_gpcs) - several if said else 0),
    ):
        if given < least:
            raise LaunchError(
                f"Graphics SKEDCHECK: a kernel with local memory, and SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C.{name} "
                f"is {given}; this GPU has {least}"
            )


def check_bank0(chip: Chip, qmd: Qmd, code: Code, bank: bytes, windows: Windows) -> None:
    """What compiled code may read in constant bank 0 has to be what the QMD and the channel say.

    Zeros are fine where this kernel reads nothing: a launcher may leave out what its compiler never uses.
    """
    at = BANKS[qmd.version]
    grid, block = grid_of(qmd), block_of(qmd)
    param_bytes = code.kernel.param_bytes
    param_at = chip.param_offset_of(param_bytes)
    va = qmd.value("constant_buffer_addr_0")
    has_const = qmd.value("constant_buffer_valid_3")
    const = qmd.value("constant_buffer_addr_3")
    wanted: list[tuple[str, int, str, tuple[int | float, ...], tuple[str, ...]]] = [
        ("the block", at.ntid, "<3I", block, ("%ntid",)),
        ("the grid", at.nctaid, "<3I", grid, ("%nctaid",)),
        ("the local window", at.local_window, "<Q", (windows.local,), (".local",)),
        ("the stack pointer", at.stack_pointer, "<I", (STACK_TOP,), (".local", "call")),
    ]
    if at.shared_window:
        wanted.append(("the shared window", at.shared_window, "<Q", (windows.shared,), ("cvta.shared",)))
    if at.bank:
        wanted.append(("the bank's own address", at.bank, "<Q", (va,), PARAM_READERS))
        end = param_at + param_bytes
        wanted.append(("the end of the parameters in it", at.param_end, "<I", (end,), ("isspacep.param",)))
    if at.params:
        start = va + param_at
        span = start, start + param_bytes
        wanted.append(("the parameters' addresses", at.params, "<2Q", span, PARAM_READERS))
    blocks, reciprocals, clusters = at.clusters
    if blocks:
        cluster = cluster_of(qmd)
        wanted.append(("the blocks of a cluster", blocks, "<3I", cluster, ("%cluster_", "%clusterid.x")))
        yz, ones = ("%clusterid.y", "%clusterid.z"), tuple(float(np.float32(1 / one)) for one in cluster)
        wanted.append(
            ("1 / the blocks of a cluster", reciprocals + 4, "<2f", ones[1:], yz)
        )  # that of x is not read
        held = tuple(size // width for size, width in zip(grid, cluster))
        wanted.append(("the clusters of the grid", clusters, "<3I", held, ("%nclusterid",)))
        if prod(cluster) > 1:
            asking = "%is_explicit_cluster", "barrier.cluster"
            wanted.append(("whether clusters were asked for", at.is_cluster, "<I", (1,), asking))
    if has_const:
        wanted.append(("the address of constant bank 3", at.const, "<Q", (const,), CONST_READERS))
    for what, offset, form, value, readers in wanted:
        if offset + struct.calcsize(form) > len(bank):
            raise LaunchError(
                f"Graphics Exception: constant bank 0 has {len(bank):#x} bytes, and {what} is at {offset:#x}"
            )
        found = struct.unpack_from(form, bank, offset)
        is_left_out = not any(found) and not any(reader in code.text for reader in readers)
        if found != value and not is_left_out:
            raise LaunchError(
                f"Graphics Exception: constant bank 0 says at {offset:#x} that {what} is {_shown(found)}; "
                f"it is {_shown(value)}"
            )
    if "%reserved_smem_offset" in code.text:
        check_reserved(chip, qmd, bank, at.reserved)


def envregs_of(qmd: Qmd, bank: bytes) -> dict[str, int]:
    """The driver's own special registers, which are words of constant bank 0; what is not in the bank reads 0."""
    ends = [at + 4 * count for _, count, at in BANKS[qmd.version].envregs]
    bank = bank.ljust(max(ends, default=0), b"\0")
    return {
        f"envreg{first + number}": value
        for first, count, at in BANKS[qmd.version].envregs
        for number, value in enumerate(struct.unpack_from(f"<{count}I", bank, at))
    }


def check_reserved(chip: Chip, qmd: Qmd, bank: bytes, at: int) -> None:
    """Cooperative groups exchange values in the reserved part of shared memory. It is the block's last KiB, from sm_90
    on its first: a slot elsewhere is in the kernel's own memory."""
    end = RESERVED_SHARED_BYTES if chip.has_shared_window_of_4_gib else qmd.value("shared_memory_size")
    says, slot = struct.unpack_from("<2I", bank, at)
    if says != end or not end - RESERVED_SHARED_BYTES <= slot <= end - COOPERATIVE_BYTES:
        raise LaunchError(
            f"Graphics Exception: constant bank 0 says at {at:#x} that reserved shared memory ends at {says:#x}, "
            f"with a slot at {slot:#x}; it is [{end - RESERVED_SHARED_BYTES:#x}, {end:#x})"
        )


def check_constants(qmd: Qmd, code: Code) -> None:
    """Machine code reads .const variables through constant banks: each has to lie in one that the QMD binds."""
    bound = []
    for bank in CONSTANT_BANKS:
        if qmd.value(f"constant_buffer_valid_{bank}"):
            va = qmd.value(f"constant_buffer_addr_{bank}")
            bound.append((va, va + qmd.value(f"constant_buffer_size_{bank}")))
    for name, va, size in code.constants:
        if not any(start <= va and va + size <= end for start, end in bound):
            raise LaunchError(
                f"Graphics Exception: the .const variable {name!r} at {va:#x} is in none of the constant banks that "
                f"the QMD binds: {', '.join(f'[{start:#x}, {end:#x})' for start, end in bound)}"
            )


def stopped(error: KernelFault | UsageError, memory: View, block: tuple[int, int, int]) -> ChannelError:
    """What stops the channel when the interpreter stops a kernel. block: how many threads of each direction it has."""
    if isinstance(error, (StepLimit, Interrupted, Deadlock)):
        return HungKernel(f"CTX SWITCH TIMEOUT: {error}")
    missed = memory.take_missed()
    if missed is not None:
        address, access = missed
        kind = FaultType.RO_VIOLATION if memory.find(address) is not None else FaultType.PDE
        return MmuFault(address, access, THREADS, str(error), kind)
    found = next((number for kind, number in WARP_ERRORS if isinstance(error, kind)), ILLEGAL)
    threads = getattr(error, "threads", [])
    x, y, z = threads[0][1] if threads else (0, 0, 0)
    warp = (x + block[0] * (y + block[1] * z)) // WARP
    text = f"{WARP_EXCEPTION}: {error}"
    return KernelError(text, getattr(error, "address", 0), found, warp, is_trap=isinstance(error, Trap))


def stop_of(program: int, kernel: Kernel, error: KernelFault, end: ChannelError) -> waves.Stop:
    """What a report says of a kernel that was stopped."""
    what = waves.Kernel(program, kernel.function.name, error.waves)
    if not error.access:
        return waves.Stop(what, str(error))
    address = end.address if isinstance(end, MmuFault) else getattr(error, "address", 0)
    return waves.Stop(what, str(error), error.access, address, error.size_bytes)


def _shown(numbers: tuple[int | float, ...]) -> str:
    return ", ".join(f"{each:#x}" if isinstance(each, int) else f"{each}" for each in numbers)


def tally_of(chip: Chip, qmd: Qmd, kernel: Kernel, sample: int, has_code: bool) -> Tally:
    """Where a launch that counts counts: shared memory without the system's part of it.

    Registers are those that the QMD gives; of PTX alone, an estimate.
    """
    function = kernel.function
    registers = qmd.value("register_count")
    if not has_code:
        registers = register_estimate.estimate(blocks_of(function), function.registers)
    return Tally(
        chip.arch,
        qmd.value("program_address"),
        kernel.function.name,
        grid_of(qmd),
        block_of(qmd),
        WARP,
        registers,
        max(0, qmd.value("shared_memory_size") - RESERVED_SHARED_BYTES),
        qmd.value("shader_local_memory_low_size") + qmd.value("shader_local_memory_high_size"),
        sample,
    )
