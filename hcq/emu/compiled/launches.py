"""Whole launches in machine code: one call runs workgroup after workgroup, on one core or on all of them.

In       a kernel's compiled function, a Job for each thread: how a workgroup begins, and where its waves lie
Out      the workgroups have run; or a Job stands in the middle of one, for the interpreter or for the next call
Changes  what the kernel changes
Next     assemble.py (machine code), threads.py (jobs on several cores),
         hcq/emu/amd/shader/native_launch.py (a user)

How to use it. A kernel's function takes a table and runs the waves of one workgroup, those whose entry is not negative,
one after the other. Each leaves the number of its exit, and what is left of its fuel (the barrier, and the
end of the kernel, are counted here). `meanings` says what each exit
is: ENDED, STUCK (only the interpreter goes on from there), `goes_on(entry)` where a wave ran out of fuel at the head of
a loop, `waits(entry)` where it came to the barrier of its workgroup, behind which that entry is. A Job keeps a
workgroup's memory: a part that is zero when a workgroup begins (registers, shared memory), a part that is the same for
all (entries, fuels, scalar registers: the image), rows that go into the zeros (the ids of work-items), and words with
the workgroup's coordinates. Jobs that share a counter take workgroups from it in turns. `run` returns when all are
done, when its instructions are used up, or when a wave is stuck. The workgroup that it stands in goes on with the next
call, unless somebody takes it over: then `group` is set to -1.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hcq.emu.compiled import assemble
from hcq.system import native

# what the driver is passed, 64 bits each
NEXT, COUNT, CODE, TABLE, ZEROS, ZERO_BYTES, IMAGE, PLACE, BYTES, ROWS, ROW_BYTES, ROW_STEP = range(12)
POKES, POKE_COUNT, GRID_X, GRID_Y, WAVES, EXITS, ENTRIES, FUELS, MEANINGS, FUEL = range(12, 22)
LEFT, GROUP, STATE, DONE, JOB_WORDS = range(22, 27)
FINISHED, PAUSED, BLOCKED = range(3)  # states: nothing is left, instructions are used up, a wave is stuck
ENDED, STUCK = -1, -(1 << 62)  # meanings of exits
X, Y, Z, YZ = range(4)  # coordinates: the last one is y with z above it, as gfx12 has them


def goes_on(entry: int) -> int:
    """The meaning of an exit where a wave ran out of fuel."""
    return entry


def waits(entry: int) -> int:
    """The meaning of an exit at a barrier, behind which this entry is."""
    return -2 - entry


def _field(number: int, name: str, kind: str = "i64") -> str:
    return f"  %p_{name} = getelementptr i64, ptr %job, i64 {number}\n  %{name} = load {kind}, ptr %p_{name}"


def _text() -> str:
    fields = "\n".join(
        [_field(number, name) for number, name in _NUMBERS]
        + [_field(n, name, "ptr") for n, name in _POINTERS]
    )
    return _DRIVER.replace("; FIELDS", fields)


_NUMBERS = [(COUNT, "count"), (ZERO_BYTES, "zerobytes"), (BYTES, "bytes"), (ROW_BYTES, "rowbytes")]
_NUMBERS += [(ROW_STEP, "rowstep"), (POKE_COUNT, "pokecount"), (GRID_X, "gridx"), (GRID_Y, "gridy")]
_NUMBERS += [(WAVES, "waves"), (FUEL, "fuel"), (LEFT, "left0"), (GROUP, "group0")]
_POINTERS = [
    (NEXT, "next"),
    (CODE, "code"),
    (TABLE, "table"),
    (ZEROS, "zeros"),
    (IMAGE, "image"),
    (PLACE, "place"),
]
_POINTERS += [(ROWS, "rows"), (POKES, "pokes"), (EXITS, "exits"), (ENTRIES, "entries"), (FUELS, "fuels")]
_POINTERS += [(MEANINGS, "meanings")]
_DRIVER = f"""
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i32 @run(ptr %job) {{
start:
; FIELDS
  %p_state = getelementptr i64, ptr %job, i64 {STATE}
  %p_done = getelementptr i64, ptr %job, i64 {DONE}
  %resumes = icmp sge i64 %group0, 0
  br i1 %resumes, label %round, label %take
take:
  %spent = load i64, ptr %p_left0
  %may = icmp sgt i64 %spent, 0
  br i1 %may, label %pick, label %nobody
nobody:
  store i64 -1, ptr %p_group0
  store i64 {PAUSED}, ptr %p_state
  ret i32 0
pick:
  %g = atomicrmw add ptr %next, i64 1 seq_cst
  %is = icmp slt i64 %g, %count
  br i1 %is, label %begin, label %over
over:
  store i64 -1, ptr %p_group0
  store i64 {FINISHED}, ptr %p_state
  ret i32 0
begin:
  store i64 %g, ptr %p_group0
  call void @llvm.memset.p0.i64(ptr %zeros, i8 0, i64 %zerobytes, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %image, i64 %bytes, i1 false)
  %gx = urem i64 %g, %gridx
  %gyz = udiv i64 %g, %gridx
  %gy = urem i64 %gyz, %gridy
  %gz = udiv i64 %gyz, %gridy
  br label %row
row:
  %r = phi i64 [0, %begin], [%r1, %row]
  %rfromat = mul i64 %r, %rowbytes
  %rfrom = getelementptr i8, ptr %rows, i64 %rfromat
  %rtoat = mul i64 %r, %rowstep
  %rto = getelementptr i8, ptr %zeros, i64 %rtoat
  call void @llvm.memcpy.p0.p0.i64(ptr %rto, ptr %rfrom, i64 %rowbytes, i1 false)
  %r1 = add i64 %r, 1
  %rmore = icmp ult i64 %r1, %waves
  br i1 %rmore, label %row, label %poke
poke:
  %k = phi i64 [0, %row], [%k1, %put]
  %kmore = icmp ult i64 %k, %pokecount
  br i1 %kmore, label %put, label %round
put:
  %kat = getelementptr [2 x i64], ptr %pokes, i64 %k
  %koffset = load i64, ptr %kat
  %kindat = getelementptr i64, ptr %kat, i64 1
  %kind = load i64, ptr %kindat
  %high = shl i64 %gz, 16
  %yz = or i64 %gy, %high
  %isx = icmp eq i64 %kind, {X}
  %isy = icmp eq i64 %kind, {Y}
  %isz = icmp eq i64 %kind, {Z}
  %v0 = select i1 %isz, i64 %gz, i64 %yz
  %v1 = select i1 %isy, i64 %gy, i64 %v0
  %v2 = select i1 %isx, i64 %gx, i64 %v1
  %v = trunc i64 %v2 to i32
  %kto = getelementptr i8, ptr %place, i64 %koffset
  store i32 %v, ptr %kto
  %k1 = add i64 %k, 1
  br label %poke
round:
  %ignored = call i32 %code(ptr %table)
  br label %look
look:
  %w = phi i64 [0, %round], [%w1, %seen]
  %used = phi i64 [0, %round], [%usednow, %seen]
  %runs = phi i1 [false, %round], [%runsnow, %seen]
  %waits = phi i1 [false, %round], [%waitsnow, %seen]
  %stuck = phi i1 [false, %round], [%stucknow, %seen]
  %eat = getelementptr i64, ptr %entries, i64 %w
  %e = load i64, ptr %eat
  %ran = icmp sge i64 %e, 0
  br i1 %ran, label %mean, label %seen
mean:
  %xat = getelementptr i32, ptr %exits, i64 %w
  %x = load i32, ptr %xat
  %mat = getelementptr i64, ptr %meanings, i32 %x
  %m = load i64, ptr %mat
  %fat = getelementptr i64, ptr %fuels, i64 %w
  %f = load i64, ptr %fat
  %frest = sub i64 %fuel, %f
  %mstuck = icmp eq i64 %m, {STUCK}
  %mends = icmp slt i64 %m, 0
  %mgoes = xor i1 %mstuck, true
  %mlast = and i1 %mends, %mgoes
  %mone = zext i1 %mlast to i64
  %fused = add i64 %frest, %mone
  store i64 %fuel, ptr %fat
  %kept = select i1 %mstuck, i64 %e, i64 %m
  store i64 %kept, ptr %eat
  br label %seen
seen:
  %e1 = phi i64 [%e, %look], [%kept, %mean]
  %plus = phi i64 [0, %look], [%fused, %mean]
  %newstuck = phi i1 [false, %look], [%mstuck, %mean]
  %usednow = add i64 %used, %plus
  %stucknow = or i1 %stuck, %newstuck
  %r0 = icmp sge i64 %e1, 0
  %runsnow = or i1 %runs, %r0
  %w0 = icmp sle i64 %e1, -2
  %waitsnow = or i1 %waits, %w0
  %w1 = add i64 %w, 1
  %wmore = icmp ult i64 %w1, %waves
  br i1 %wmore, label %look, label %judge
judge:
  %had = load i64, ptr %p_left0
  %left = sub i64 %had, %usednow
  store i64 %left, ptr %p_left0
  br i1 %stucknow, label %blocked, label %notstuck
blocked:
  store i64 {BLOCKED}, ptr %p_state
  ret i32 0
notstuck:
  br i1 %runsnow, label %further, label %nonerun
further:
  %time = icmp sgt i64 %left, 0
  br i1 %time, label %round, label %pause
pause:
  store i64 {PAUSED}, ptr %p_state
  ret i32 0
nonerun:
  br i1 %waitsnow, label %open, label %ended
open:
  %b = phi i64 [0, %nonerun], [%b1, %opened]
  %bat = getelementptr i64, ptr %entries, i64 %b
  %be = load i64, ptr %bat
  %bwaits = icmp sle i64 %be, -2
  br i1 %bwaits, label %lift, label %opened
lift:
  %behind = sub i64 -2, %be
  store i64 %behind, ptr %bat
  br label %opened
opened:
  %b1 = add i64 %b, 1
  %bmore = icmp ult i64 %b1, %waves
  br i1 %bmore, label %open, label %further
ended:
  %d = load i64, ptr %p_done
  %d1 = add i64 %d, 1
  store i64 %d1, ptr %p_done
  br label %take
}}
"""


@functools.cache
def driver() -> assemble.Assembled:
    """The machine code that goes from workgroup to workgroup."""
    return assemble.Assembled(_text())


class Job:
    """A thread's part of a launch: a table for the driver, and what has to live as long as it."""

    def __init__(self) -> None:
        self.table = np.zeros(JOB_WORDS, np.int64)
        self.fields = self.table.data  # the same, quicker to read and write one by one
        self.address = native.address_of(self.fields)
        self.fields[GROUP] = -1
        self.held: list[Any] = []

    def __getitem__(self, field: int) -> int:
        return self.fields[field]

    def __setitem__(self, field: int, value: int) -> None:
        self.fields[field] = value

    def run(self, instructions: int) -> int:
        """Run workgroups until so many instructions are used up, or a wave is stuck. Returns how many were."""
        self.fields[LEFT] = instructions
        driver().run(self.address)
        return instructions - self.fields[LEFT]
