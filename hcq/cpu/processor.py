"""The command processor and its workers, as LLVM IR: what stands where a GPU's silicon would.

In       the layouts of packets.py, whose offsets the IR reads ($Dispatch.entry is that field's byte offset)
Out      `ir_text(machine)`; `build(machine)` makes the ELF object of it, once: the result is cached and needs no LLVM
Changes  nothing
Next     device.py (starts the threads), docs/cpu-device.md (the same in prose), packets.py (every word it touches)

Threads: one command processor runs packets in order; workers help it with the groups of one dispatch at a time.
Both spin for a few microseconds when there is nothing to do and then sleep on a futex. A ticket counts down from the
number of claims: whoever gets a positive value owns that piece of the grid, so a worker that comes late gets nothing,
and needs no generation number to know it. Each sleeping place follows one rule: announce, look again, sleep; and the
other side: change, then look for sleepers. All four are sequentially consistent, so no wake-up is ever lost.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hcq.cpu import packets
from hcq.errors import UsageError


class Machine(NamedTuple):
    """What differs between host processors, as far as calling a C function and sleeping go."""

    name: str
    triple: str
    cpu: str  # a baseline: the object then runs on every machine of this kind, and a shared home directory is safe
    integer_registers: int
    float_registers: int
    syscall_futex: int
    syscall_yield: int
    pause: str  # the intrinsic of a polite spin loop, and how it is called


X86_64 = Machine("x86_64", "x86_64-unknown-linux-gnu", "x86-64", 6, 8, 202, 24, "@llvm.x86.sse2.pause()")
AARCH64 = Machine(
    "aarch64", "aarch64-unknown-linux-gnu", "generic", 8, 8, 98, 124, "@llvm.aarch64.hint(i32 1)"
)
MACHINES = {machine.name: machine for machine in (X86_64, AARCH64)}

STACK_BUCKETS = (
    0,
    4,
    16,
    64,
    256,
)  # a call passes the next larger number of stack slots; callees ignore the surplus
MAX_STACK_SLOTS = STACK_BUCKETS[-1]


def machine_named(name: str) -> Machine:
    """The Machine of this host. Raises UsageError for a processor we have no command processor for."""
    if name not in MACHINES:
        raise UsageError(
            f"open CPU device: this is {name!r}; the CPU device runs on {' and '.join(MACHINES)}."
        )
    return MACHINES[name]


def ir_text(machine: Machine) -> str:
    """The module as LLVM IR text, with every layout offset filled in. Same text, same object."""
    text = _IR.replace("$calls", _universal_calls(machine))
    constants = {
        "pause": machine.pause,
        "pause_declaration": machine.pause.replace("i32 1", "i32"),
        "futex": str(machine.syscall_futex),
        "yield": str(machine.syscall_yield),
        "triple": machine.triple,
        "max_slots": str(machine.integer_registers + machine.float_registers + MAX_STACK_SLOTS),
    }

    def offset(match: re.Match[str]) -> str:
        layout, field = match.group(1), match.group(2)
        if field is None:
            return constants[layout]
        if layout == "Fault":
            return str(int(packets.Fault[field]))
        if layout == "Opcode":
            return str(int(packets.Opcode[field]))
        owner = getattr(packets, layout)
        return str(owner.length_words if field == "length_words" else owner.fields[field].byte_offset)

    return re.sub(r"\$(\w+)(?:\.(\w+))?", offset, text)


def build(machine: Machine) -> bytes:
    """Assemble the module with LLVM. Slow (LLVM loads); call it on a cache miss only."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir_text(machine))
    module.verify()
    target = llvm.Target.from_triple(machine.triple)
    tuned = target.create_target_machine(cpu=machine.cpu, opt=2, reloc="pic", codemodel="small")
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(tuned, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(tuned.emit_object(module))


def _universal_calls(machine: Machine) -> str:
    """One call per (floats?, stack bucket): every register and that many stack slots are loaded from the slots."""
    integers, floats = machine.integer_registers, machine.float_registers
    lines = []
    for has_floats in (0, 1):
        for bucket in STACK_BUCKETS:
            tag = f"{has_floats}_{bucket}"
            kinds = ["i64"] * integers + ["double"] * (floats * has_floats) + ["i64"] * bucket
            lines.append(f"call_{tag}:")
            for slot, kind in enumerate(kinds):
                lines.append(f"  %p{tag}_{slot} = getelementptr i64, ptr %slots, i64 {slot}")
                lines.append(f"  %v{tag}_{slot} = load {kind}, ptr %p{tag}_{slot}")
            values = ", ".join(f"{kind} %v{tag}_{slot}" for slot, kind in enumerate(kinds))
            lines.append(f"  call void %entry({values})")
            lines.append("  ret void")
    return "\n".join(lines)


_IR = r"""
target triple = "$triple"

@waiters = internal global i32 0            ; host threads that sleep on any signal cell

declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memmove(ptr, ptr, i64)
declare void $pause_declaration

; ---------------------------------------------------------------- time, spinning, sleeping

define i64 @now_ns() {
  %t = alloca [2 x i64]
  %e = call i32 @clock_gettime(i32 1, ptr %t)          ; CLOCK_MONOTONIC
  %s = load i64, ptr %t
  %np = getelementptr i8, ptr %t, i64 8
  %n = load i64, ptr %np
  %sn = mul i64 %s, 1000000000
  %r = add i64 %sn, %n
  ret i64 %r
}

define internal void @pause8() {
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  call void $pause
  ret void
}

define internal void @futex_wait(ptr %word, i32 %seen, i64 %timeout_ns) noinline {
  %t = alloca [2 x i64]
  %s = udiv i64 %timeout_ns, 1000000000
  %n = urem i64 %timeout_ns, 1000000000
  store i64 %s, ptr %t
  %np = getelementptr i8, ptr %t, i64 8
  store i64 %n, ptr %np
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i32 128, i32 %seen, ptr %t, ptr null, i32 0)
  ret void
}

define internal void @futex_wake(ptr %word, i32 %count) noinline {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

; spin until the word is no longer `seen` or the time is up
define internal void @spin_while(ptr %word, i32 %seen, i64 %spin_ns) noinline {
entry:
  %start = call i64 @now_ns()
  br label %look
look:
  %v = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %v, %seen
  br i1 %same, label %rest, label %out
rest:
  call void @pause8()
  %y = call i64 (i64, ...) @syscall(i64 $yield)  ; whoever shares our core, Python perhaps, goes first
  %t = call i64 @now_ns()
  %d = sub i64 %t, %start
  %more = icmp ult i64 %d, %spin_ns
  br i1 %more, label %look, label %out
out:
  ret void
}

; ---------------------------------------------------------------- signals

; store time, then value; wake whoever sleeps on a cell
define void @signal_set(ptr %cell, i64 %value) {
entry:
  %t = call i64 @now_ns()
  %tp = getelementptr i8, ptr %cell, i64 $SignalCell.timestamp_ns
  store i64 %t, ptr %tp
  store atomic i64 %value, ptr %cell seq_cst, align 8
  %w = load atomic i32, ptr @waiters seq_cst, align 4
  %any = icmp ne i32 %w, 0
  br i1 %any, label %wake, label %out
wake:
  call void @futex_wake(ptr %cell, i32 2147483647)
  br label %out
out:
  ret void
}

; spin, then sleep once; returns the value seen last, which may be too small (time is up, or a stray wake-up)
define i64 @signal_wait(ptr %cell, i64 %value, i64 %timeout_ns, i64 %spin_ns) {
entry:
  %v0 = load atomic i64, ptr %cell acquire, align 8
  %d0 = icmp uge i64 %v0, %value
  br i1 %d0, label %fast, label %begin
fast:
  ret i64 %v0
begin:
  %start = call i64 @now_ns()
  br label %spin
spin:
  call void @pause8()
  %v1 = load atomic i64, ptr %cell acquire, align 8
  %d1 = icmp uge i64 %v1, %value
  br i1 %d1, label %spun, label %clock
spun:
  ret i64 %v1
clock:
  %y = call i64 (i64, ...) @syscall(i64 $yield)
  %t = call i64 @now_ns()
  %e = sub i64 %t, %start
  %more = icmp ult i64 %e, %spin_ns
  br i1 %more, label %spin, label %sleepy
sleepy:
  %left = sub i64 %timeout_ns, %e
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %announce, label %last
announce:
  %w = atomicrmw add ptr @waiters, i32 1 seq_cst
  %v2 = load atomic i64, ptr %cell seq_cst, align 8
  %d2 = icmp uge i64 %v2, %value
  br i1 %d2, label %awake, label %sleep
sleep:
  %low = trunc i64 %v2 to i32
  call void @futex_wait(ptr %cell, i32 %low, i64 %left)
  br label %awake
awake:
  %x = atomicrmw sub ptr @waiters, i32 1 seq_cst
  br label %last
last:
  %v3 = load atomic i64, ptr %cell acquire, align 8
  ret i64 %v3
}

; ---------------------------------------------------------------- what the host calls

; publish `put`, change the doorbell, wake the command processor if it sleeps
define void @doorbell_ring(ptr %q, i64 %put) {
entry:
  %pp = getelementptr i8, ptr %q, i64 $Control.put
  %dp = getelementptr i8, ptr %q, i64 $Control.doorbell
  %ap = getelementptr i8, ptr %q, i64 $Control.asleep
  store atomic i64 %put, ptr %pp release, align 8
  %old = atomicrmw add ptr %dp, i32 1 seq_cst
  %a = load atomic i32, ptr %ap seq_cst, align 4
  %any = icmp ne i32 %a, 0
  br i1 %any, label %wake, label %out
wake:
  call void @futex_wake(ptr %dp, i32 1)
  br label %out
out:
  ret void
}

; a fault has been seen to: go on
define void @fault_clear(ptr %q) {
  %ab = getelementptr i8, ptr %q, i64 $Control.abandon
  store atomic i32 0, ptr %ab seq_cst, align 4
  %fp = getelementptr i8, ptr %q, i64 $Control.fault
  store atomic i32 0, ptr %fp seq_cst, align 4
  call void @futex_wake(ptr %fp, i32 1)
  ret void
}

; every thread ends as soon as it is between two packets
define void @stop_all(ptr %q) {
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %dp = getelementptr i8, ptr %q, i64 $Control.doorbell
  %op = getelementptr i8, ptr %q, i64 $Control.posted
  %fp = getelementptr i8, ptr %q, i64 $Control.fault
  store atomic i32 1, ptr %sp seq_cst, align 4
  %d = atomicrmw add ptr %dp, i32 1 seq_cst
  call void @futex_wake(ptr %dp, i32 1)
  %o = atomicrmw add ptr %op, i32 1 seq_cst
  call void @futex_wake(ptr %op, i32 2147483647)
  call void @futex_wake(ptr %fp, i32 1)
  ret void
}

; ---------------------------------------------------------------- groups

; call a C function with every register and enough stack slots filled from `slots`
define internal void @call_kernel(ptr %entry, ptr %slots, i32 %floats, i32 %stack) {
begin:
  %has = icmp ne i32 %floats, 0
  br i1 %has, label %with, label %without
without:
  %a0 = icmp eq i32 %stack, 0
  br i1 %a0, label %call_0_0, label %w0
w0:
  %a4 = icmp ule i32 %stack, 4
  br i1 %a4, label %call_0_4, label %w4
w4:
  %a16 = icmp ule i32 %stack, 16
  br i1 %a16, label %call_0_16, label %w16
w16:
  %a64 = icmp ule i32 %stack, 64
  br i1 %a64, label %call_0_64, label %call_0_256
with:
  %b0 = icmp eq i32 %stack, 0
  br i1 %b0, label %call_1_0, label %f0
f0:
  %b4 = icmp ule i32 %stack, 4
  br i1 %b4, label %call_1_4, label %f4
f4:
  %b16 = icmp ule i32 %stack, 16
  br i1 %b16, label %call_1_16, label %f16
f16:
  %b64 = icmp ule i32 %stack, 64
  br i1 %b64, label %call_1_64, label %call_1_256
$calls
}

; copy a dispatch's arguments and fill in what is the same for all its groups
define internal void @prepare(ptr %q, ptr %p, i64 %worker, ptr %slots, ptr %group) {
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  %tail = sub i64 %l, $Dispatch.length_words
  %bytes = shl i64 %tail, 2
  %args = getelementptr i32, ptr %p, i64 $Dispatch.length_words
  %c = call ptr @memcpy(ptr %slots, ptr %args, i64 %bytes)
  %gsp = getelementptr i8, ptr %p, i64 $Dispatch.group_slot
  %gs16 = load i16, ptr %gsp
  %gs = zext i16 %gs16 to i64
  %slot = getelementptr i64, ptr %slots, i64 %gs
  store ptr %group, ptr %slot
  %gxp = getelementptr i8, ptr %p, i64 $Dispatch.grid_x
  %gyp = getelementptr i8, ptr %p, i64 $Dispatch.grid_y
  %gzp = getelementptr i8, ptr %p, i64 $Dispatch.grid_z
  %sbp = getelementptr i8, ptr %p, i64 $Dispatch.scratch_bytes
  %gx32 = load i32, ptr %gxp
  %gy32 = load i32, ptr %gyp
  %gz32 = load i32, ptr %gzp
  %sb = load i64, ptr %sbp
  %gx = zext i32 %gx32 to i64
  %gy = zext i32 %gy32 to i64
  %gz = zext i32 %gz32 to i64
  %ox = getelementptr i8, ptr %group, i64 $Group.grid_x
  %oy = getelementptr i8, ptr %group, i64 $Group.grid_y
  %oz = getelementptr i8, ptr %group, i64 $Group.grid_z
  %os = getelementptr i8, ptr %group, i64 $Group.scratch
  %ob = getelementptr i8, ptr %group, i64 $Group.scratch_bytes
  %ow = getelementptr i8, ptr %group, i64 $Group.worker
  store i64 %gx, ptr %ox
  store i64 %gy, ptr %oy
  store i64 %gz, ptr %oz
  store i64 %sb, ptr %ob
  store i64 %worker, ptr %ow
  %scp = getelementptr i8, ptr %q, i64 $Control.scratch
  %ssp = getelementptr i8, ptr %q, i64 $Control.scratch_stride
  %sc = load i64, ptr %scp
  %ss = load i64, ptr %ssp
  %so = mul i64 %ss, %worker
  %sa = add i64 %sc, %so
  store i64 %sa, ptr %os
  ret void
}

define internal void @run_range(ptr %p, ptr %slots, ptr %group, i64 %first, i64 %last) {
  store i64 %first, ptr %group
  %lp = getelementptr i8, ptr %group, i64 $Group.last
  store i64 %last, ptr %lp
  %ep = getelementptr i8, ptr %p, i64 $Dispatch.entry
  %entry = load ptr, ptr %ep
  %fp = getelementptr i8, ptr %p, i64 $Dispatch.has_floats
  %f8 = load i8, ptr %fp
  %f = zext i8 %f8 to i32
  %sp = getelementptr i8, ptr %p, i64 $Dispatch.stack_slots
  %s16 = load i16, ptr %sp
  %s = zext i16 %s16 to i32
  call void @call_kernel(ptr %entry, ptr %slots, i32 %f, i32 %s)
  ret void
}

; take claims of the job in hand until there are none
define internal void @help(ptr %q, i64 %worker) noinline {
entry:
  %slots = alloca [$max_slots x i64], align 64
  %group = alloca [$Group.length_words x i32], align 64
  %tp = getelementptr i8, ptr %q, i64 $Control.ticket
  %r0 = atomicrmw sub ptr %tp, i64 1 seq_cst
  %mine = icmp sgt i64 %r0, 0
  br i1 %mine, label %begin, label %none
none:
  ret void
begin:                                       ; our claim keeps the job, so what describes it stands still
  %pp = getelementptr i8, ptr %q, i64 $Control.job_packet
  %cp = getelementptr i8, ptr %q, i64 $Control.job_claims
  %sp = getelementptr i8, ptr %q, i64 $Control.job_claim_groups
  %p = load ptr, ptr %pp
  %claims = load i64, ptr %cp
  %size = load i64, ptr %sp
  %np = getelementptr i8, ptr %p, i64 $Dispatch.groups
  %groups = load i64, ptr %np
  call void @prepare(ptr %q, ptr %p, i64 %worker, ptr %slots, ptr %group)
  br label %claim
claim:
  %r = phi i64 [ %r0, %begin ], [ %rn, %claim ]
  %k = phi i32 [ 0, %begin ], [ %kn, %claim ]
  %index = sub i64 %claims, %r
  %first = mul i64 %index, %size
  %end = add i64 %first, %size
  %over = icmp ugt i64 %end, %groups
  %last = select i1 %over, i64 %groups, i64 %end
  call void @run_range(ptr %p, ptr %slots, ptr %group, i64 %first, i64 %last)
  %kn = add i32 %k, 1
  %rn = atomicrmw sub ptr %tp, i64 1 seq_cst
  %again = icmp sgt i64 %rn, 0
  br i1 %again, label %claim, label %finish
finish:
  %dp = getelementptr i8, ptr %q, i64 $Control.done
  %ap = getelementptr i8, ptr %q, i64 $Control.done_awaited
  %old = atomicrmw add ptr %dp, i32 %kn seq_cst
  %a = load atomic i32, ptr %ap seq_cst, align 4
  %awaited = icmp ne i32 %a, 0
  br i1 %awaited, label %wake, label %out
wake:
  call void @futex_wake(ptr %dp, i32 1)
  br label %out
out:
  ret void
}

define ptr @worker_main(ptr %start) {
entry:
  %qp = getelementptr i8, ptr %start, i64 $WorkerStart.control
  %q = load ptr, ptr %qp
  %ip = getelementptr i8, ptr %start, i64 $WorkerStart.index
  %index = load i64, ptr %ip
  %tp = getelementptr i8, ptr %q, i64 $Control.ticket
  %op = getelementptr i8, ptr %q, i64 $Control.posted
  %lp = getelementptr i8, ptr %q, i64 $Control.sleepers
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %np = getelementptr i8, ptr %q, i64 $Control.worker_spin_ns
  %spin = load i64, ptr %np
  br label %look
look:
  %stop = load atomic i32, ptr %sp seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %check
check:
  %seen = load atomic i32, ptr %op seq_cst, align 4
  %t = load atomic i64, ptr %tp seq_cst, align 8
  %work = icmp sgt i64 %t, 0
  br i1 %work, label %go, label %idle
go:
  call void @help(ptr %q, i64 %index)
  br label %look
idle:
  call void @spin_while(ptr %op, i32 %seen, i64 %spin)
  %now = load atomic i32, ptr %op seq_cst, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %look, label %announce
announce:
  %a = atomicrmw add ptr %lp, i32 1 seq_cst
  call void @futex_wait(ptr %op, i32 %seen, i64 10000000000)
  %b = atomicrmw sub ptr %lp, i32 1 seq_cst
  br label %look
out:
  %rp = getelementptr i8, ptr %q, i64 $Control.running
  %r = atomicrmw sub ptr %rp, i32 1 seq_cst
  call void @futex_wake(ptr %rp, i32 2147483647)
  ret ptr null
}

; ---------------------------------------------------------------- packets

define internal i32 @do_dispatch(ptr %q, ptr %p) {
entry:
  %slots = alloca [$max_slots x i64], align 64
  %group = alloca [$Group.length_words x i32], align 64
  %ep = getelementptr i8, ptr %p, i64 $Dispatch.entry
  %e = load i64, ptr %ep
  %np = getelementptr i8, ptr %p, i64 $Dispatch.groups
  %groups = load i64, ptr %np
  %gsp = getelementptr i8, ptr %p, i64 $Dispatch.group_slot
  %gs16 = load i16, ptr %gsp
  %gs = zext i16 %gs16 to i64
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  %tail = sub i64 %l, $Dispatch.length_words
  %n_slots = ashr i64 %tail, 1
  %bad0 = icmp eq i64 %e, 0
  %bad1 = icmp slt i64 %groups, 1
  %bad2 = icmp uge i64 %gs, %n_slots
  %bad3 = icmp ugt i64 %n_slots, $max_slots
  %bad01 = or i1 %bad0, %bad1
  %bad23 = or i1 %bad2, %bad3
  %bad = or i1 %bad01, %bad23
  br i1 %bad, label %refuse, label %size
refuse:
  ret i32 $Fault.BAD_DISPATCH
size:
  %countp = getelementptr i8, ptr %q, i64 $Control.dispatches
  %count = load i64, ptr %countp
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %countp
  %thp = getelementptr i8, ptr %q, i64 $Control.threads
  %threads = load i64, ptr %thp
  %one_group = icmp eq i64 %groups, 1
  %one_thread = icmp ule i64 %threads, 1
  %inline = or i1 %one_group, %one_thread
  br i1 %inline, label %alone, label %split
alone:
  call void @prepare(ptr %q, ptr %p, i64 0, ptr %slots, ptr %group)
  call void @run_range(ptr %p, ptr %slots, ptr %group, i64 0, i64 %groups)
  ret i32 0
split:                                       ; about eight claims a thread, unless the packet says how many groups each
  %sizep = getelementptr i8, ptr %p, i64 $Dispatch.groups_per_claim
  %size32 = load i32, ptr %sizep
  %given = zext i32 %size32 to i64
  %eight = shl i64 %threads, 3
  %share = udiv i64 %groups, %eight
  %share1 = call i64 @llvm.umax.i64(i64 %share, i64 1)
  %is_given = icmp ne i64 %given, 0
  %want = select i1 %is_given, i64 %given, i64 %share1
  %least = lshr i64 %groups, 30               ; claims are counted in 32 bits
  %least1 = add i64 %least, 1
  %use = call i64 @llvm.umax.i64(i64 %want, i64 %least1)
  %top = add i64 %groups, %use
  %top1 = sub i64 %top, 1
  %claims = udiv i64 %top1, %use
  %jp = getelementptr i8, ptr %q, i64 $Control.job_packet
  %jc = getelementptr i8, ptr %q, i64 $Control.job_claims
  %js = getelementptr i8, ptr %q, i64 $Control.job_claim_groups
  %dp = getelementptr i8, ptr %q, i64 $Control.done
  %ap = getelementptr i8, ptr %q, i64 $Control.done_awaited
  %tp = getelementptr i8, ptr %q, i64 $Control.ticket
  %op = getelementptr i8, ptr %q, i64 $Control.posted
  %slp = getelementptr i8, ptr %q, i64 $Control.sleepers
  store ptr %p, ptr %jp
  store i64 %claims, ptr %jc
  store i64 %use, ptr %js
  store atomic i32 0, ptr %dp seq_cst, align 4
  store atomic i64 %claims, ptr %tp seq_cst, align 8
  %o = atomicrmw add ptr %op, i32 1 seq_cst
  %sl = load atomic i32, ptr %slp seq_cst, align 4
  %any = icmp ne i32 %sl, 0
  br i1 %any, label %wake, label %work
wake:
  %others = sub i64 %claims, 1
  %few = call i64 @llvm.umin.i64(i64 %others, i64 1024)
  %few32 = trunc i64 %few to i32
  call void @futex_wake(ptr %op, i32 %few32)
  br label %work
work:
  call void @help(ptr %q, i64 0)
  %c32 = trunc i64 %claims to i32
  %spp = getelementptr i8, ptr %q, i64 $Control.processor_spin_ns
  %spin = load i64, ptr %spp
  br label %await
await:
  %d = load atomic i32, ptr %dp seq_cst, align 4
  %all = icmp eq i32 %d, %c32
  br i1 %all, label %finished, label %spin_a_while
spin_a_while:
  call void @spin_while(ptr %dp, i32 %d, i64 %spin)
  %d1 = load atomic i32, ptr %dp seq_cst, align 4
  %moved = icmp ne i32 %d1, %d
  br i1 %moved, label %await, label %sleep
sleep:
  store atomic i32 1, ptr %ap seq_cst, align 4
  call void @futex_wait(ptr %dp, i32 %d, i64 10000000000)
  store atomic i32 0, ptr %ap seq_cst, align 4
  br label %await
finished:
  ret i32 0
}

define internal i32 @do_fill(ptr %p) {
entry:
  %dp = getelementptr i8, ptr %p, i64 $Fill.dst
  %pp = getelementptr i8, ptr %p, i64 $Fill.pattern
  %np = getelementptr i8, ptr %p, i64 $Fill.size_bytes
  %dst = load ptr, ptr %dp
  %pattern = load i64, ptr %pp
  %n = load i64, ptr %np
  %whole = lshr i64 %n, 3
  %some = icmp ne i64 %whole, 0
  br i1 %some, label %eight, label %rest
eight:
  %i = phi i64 [ 0, %entry ], [ %in, %eight ]
  %a = getelementptr i64, ptr %dst, i64 %i
  store i64 %pattern, ptr %a, align 1
  %in = add i64 %i, 1
  %more = icmp ult i64 %in, %whole
  br i1 %more, label %eight, label %rest
rest:
  %done = shl i64 %whole, 3
  %tail_some = icmp ult i64 %done, %n
  br i1 %tail_some, label %byte, label %out
byte:
  %j = phi i64 [ %done, %rest ], [ %jn, %byte ]
  %left = phi i64 [ %pattern, %rest ], [ %shifted, %byte ]
  %b = trunc i64 %left to i8
  %ba = getelementptr i8, ptr %dst, i64 %j
  store i8 %b, ptr %ba
  %shifted = lshr i64 %left, 8
  %jn = add i64 %j, 1
  %again = icmp ult i64 %jn, %n
  br i1 %again, label %byte, label %out
out:
  ret i32 0
}

define internal i32 @do_wait(ptr %q, ptr %p) {
entry:
  %cp = getelementptr i8, ptr %p, i64 $Wait.signal
  %vp = getelementptr i8, ptr %p, i64 $Wait.value
  %cell = load ptr, ptr %cp
  %value = load i64, ptr %vp
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %ap = getelementptr i8, ptr %q, i64 $Control.abandon
  %npp = getelementptr i8, ptr %q, i64 $Control.processor_spin_ns
  %spin = load i64, ptr %npp
  br label %again
again:
  %v = call i64 @signal_wait(ptr %cell, i64 %value, i64 10000000, i64 %spin)
  %reached = icmp uge i64 %v, %value
  br i1 %reached, label %out, label %late
late:
  %stop = load atomic i32, ptr %sp seq_cst, align 4
  %abandon = load atomic i32, ptr %ap seq_cst, align 4
  %both = or i32 %stop, %abandon
  %give_up = icmp ne i32 %both, 0
  br i1 %give_up, label %refuse, label %again
refuse:
  ret i32 $Fault.ABANDONED_WAIT
out:
  ret i32 0
}

; run the packets of a block; 0, or the fault of the packet whose address then stands in fault_address
define internal i32 @do_block(ptr %q, ptr %block, i64 %words) {
entry:
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %after, %done ]
  %left = sub i64 %words, %at
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %read, label %out
read:
  %p = getelementptr i32, ptr %block, i64 %at
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  %status = call i32 @do_packet(ptr %q, ptr %p, i64 %left)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %done
done:
  %after = add i64 %at, %l
  br label %next
fail:
  ret i32 %status
out:
  ret i32 0
}

define internal i32 @do_packet(ptr %q, ptr %p, i64 %left) noinline {
entry:
  %op8 = load i8, ptr %p
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  switch i8 %op8, label %unknown [ i8 $Opcode.NOP, label %least_nop
                                   i8 $Opcode.DISPATCH, label %least_dispatch
                                   i8 $Opcode.COPY, label %least_copy
                                   i8 $Opcode.FILL, label %least_fill
                                   i8 $Opcode.WAIT, label %least_wait
                                   i8 $Opcode.SIGNAL, label %least_signal
                                   i8 $Opcode.TIMESTAMP, label %least_timestamp
                                   i8 $Opcode.BARRIER, label %least_barrier
                                   i8 $Opcode.INDIRECT, label %least_indirect ]
least_nop:
  br label %check
least_dispatch:
  br label %check
least_copy:
  br label %check
least_fill:
  br label %check
least_wait:
  br label %check
least_signal:
  br label %check
least_timestamp:
  br label %check
least_barrier:
  br label %check
least_indirect:
  br label %check
check:
  %least = phi i64 [ $Nop.length_words, %least_nop ], [ $Dispatch.length_words, %least_dispatch ],
                   [ $Copy.length_words, %least_copy ], [ $Fill.length_words, %least_fill ],
                   [ $Wait.length_words, %least_wait ], [ $Signal.length_words, %least_signal ],
                   [ $Timestamp.length_words, %least_timestamp ], [ $Barrier.length_words, %least_barrier ],
                   [ $Indirect.length_words, %least_indirect ]
  %short = icmp ult i64 %l, %least
  %long = icmp ugt i64 %l, %left
  %odd = and i64 %l, 1
  %is_odd = icmp ne i64 %odd, 0
  %bad0 = or i1 %short, %long
  %bad = or i1 %bad0, %is_odd
  br i1 %bad, label %bad_length, label %run
run:
  %count_p = getelementptr i8, ptr %q, i64 $Control.packets
  %count = load i64, ptr %count_p
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %count_p
  switch i8 %op8, label %unknown [ i8 $Opcode.NOP, label %ok
                                   i8 $Opcode.DISPATCH, label %dispatch
                                   i8 $Opcode.COPY, label %copy
                                   i8 $Opcode.FILL, label %fill
                                   i8 $Opcode.WAIT, label %wait
                                   i8 $Opcode.SIGNAL, label %signal
                                   i8 $Opcode.TIMESTAMP, label %timestamp
                                   i8 $Opcode.BARRIER, label %barrier
                                   i8 $Opcode.INDIRECT, label %indirect ]
dispatch:
  %s1 = call i32 @do_dispatch(ptr %q, ptr %p)
  br label %result
copy:
  %cdp = getelementptr i8, ptr %p, i64 $Copy.dst
  %csp = getelementptr i8, ptr %p, i64 $Copy.src
  %cnp = getelementptr i8, ptr %p, i64 $Copy.size_bytes
  %cd = load ptr, ptr %cdp
  %cs = load ptr, ptr %csp
  %cn = load i64, ptr %cnp
  %cr = call ptr @memmove(ptr %cd, ptr %cs, i64 %cn)
  br label %ok
fill:
  %s3 = call i32 @do_fill(ptr %p)
  br label %result
wait:
  %s4 = call i32 @do_wait(ptr %q, ptr %p)
  br label %result
signal:
  %gcp = getelementptr i8, ptr %p, i64 $Signal.signal
  %gvp = getelementptr i8, ptr %p, i64 $Signal.value
  %gc = load ptr, ptr %gcp
  %gv = load i64, ptr %gvp
  call void @signal_set(ptr %gc, i64 %gv)
  br label %ok
timestamp:
  %tap = getelementptr i8, ptr %p, i64 $Timestamp.address
  %ta = load ptr, ptr %tap
  %tn = call i64 @now_ns()
  store i64 %tn, ptr %ta, align 1
  br label %ok
barrier:
  fence seq_cst
  br label %ok
indirect:
  %iap = getelementptr i8, ptr %p, i64 $Indirect.address
  %isp = getelementptr i8, ptr %p, i64 $Indirect.size_words
  %ia = load ptr, ptr %iap
  %is = load i64, ptr %isp
  %s8 = call i32 @do_block(ptr %q, ptr %ia, i64 %is)
  ret i32 %s8
ok:
  ret i32 0
result:
  %s = phi i32 [ %s1, %dispatch ], [ %s3, %fill ], [ %s4, %wait ]
  %good = icmp eq i32 %s, 0
  br i1 %good, label %ok, label %fault
bad_length:
  br label %fault
unknown:
  br label %fault
fault:
  %code = phi i32 [ %s, %result ], [ $Fault.BAD_LENGTH, %bad_length ], [ $Fault.UNKNOWN_OPCODE, %unknown ]
  %fap = getelementptr i8, ptr %q, i64 $Control.fault_address
  store ptr %p, ptr %fap
  ret i32 %code
}

define ptr @processor_main(ptr %q) {
entry:
  %pp = getelementptr i8, ptr %q, i64 $Control.put
  %gp = getelementptr i8, ptr %q, i64 $Control.get
  %dp = getelementptr i8, ptr %q, i64 $Control.doorbell
  %ap = getelementptr i8, ptr %q, i64 $Control.asleep
  %fp = getelementptr i8, ptr %q, i64 $Control.fault
  %sp = getelementptr i8, ptr %q, i64 $Control.stop
  %rp = getelementptr i8, ptr %q, i64 $Control.ring
  %wp = getelementptr i8, ptr %q, i64 $Control.ring_words
  %np = getelementptr i8, ptr %q, i64 $Control.processor_spin_ns
  %ring = load ptr, ptr %rp
  %ring_words = load i64, ptr %wp
  %mask = sub i64 %ring_words, 1
  %spin = load i64, ptr %np
  br label %look
look:
  %stop = load atomic i32, ptr %sp seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %check
check:
  %seen = load atomic i32, ptr %dp seq_cst, align 4
  %put = load atomic i64, ptr %pp acquire, align 8
  %get = load i64, ptr %gp
  %empty = icmp eq i64 %put, %get
  br i1 %empty, label %idle, label %run
idle:
  call void @spin_while(ptr %dp, i32 %seen, i64 %spin)
  %now = load atomic i32, ptr %dp seq_cst, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %look, label %announce
announce:
  store atomic i32 1, ptr %ap seq_cst, align 4
  call void @futex_wait(ptr %dp, i32 %seen, i64 10000000000)
  store atomic i32 0, ptr %ap seq_cst, align 4
  br label %look
run:
  %index = and i64 %get, %mask
  %p = getelementptr i32, ptr %ring, i64 %index
  %to_put = sub i64 %put, %get
  %to_end = sub i64 %ring_words, %index
  %left = call i64 @llvm.umin.i64(i64 %to_put, i64 %to_end)
  %lp = getelementptr i8, ptr %p, i64 2
  %l16 = load i16, ptr %lp
  %l = zext i16 %l16 to i64
  %status = call i32 @do_packet(ptr %q, ptr %p, i64 %left)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %advance
advance:
  %after = add i64 %get, %l
  store atomic i64 %after, ptr %gp release, align 8
  br label %look
fail:
  %tlp = getelementptr i8, ptr %q, i64 $Control.timeline
  %tl = load ptr, ptr %tlp
  store atomic i32 %status, ptr %fp seq_cst, align 4
  call void @futex_wake(ptr %tl, i32 2147483647)
  br label %halted
halted:
  %stop2 = load atomic i32, ptr %sp seq_cst, align 4
  %stopped2 = icmp ne i32 %stop2, 0
  br i1 %stopped2, label %out, label %halt
halt:
  %f = load atomic i32, ptr %fp seq_cst, align 4
  %cleared = icmp eq i32 %f, 0
  br i1 %cleared, label %look, label %nap
nap:
  call void @futex_wait(ptr %fp, i32 %f, i64 1000000000)
  br label %halted
out:
  %up = getelementptr i8, ptr %q, i64 $Control.running
  %u = atomicrmw sub ptr %up, i32 1 seq_cst
  call void @futex_wake(ptr %up, i32 2147483647)
  ret ptr null
}

declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
"""
