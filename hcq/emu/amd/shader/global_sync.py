"""Global wave sync (ds_gws_init, ds_gws_barrier): workgroups of one dispatch that wait for each other.

In       a Context for one of these instructions
Out      an Ending: waves that may go on, and waves that look again
Changes  counters that live longer than a dispatch: a kernel sets one for the kernel after it
Next     control.py (who asks), run.py (all workgroups are resident where a queue has global wave sync)
Source   "Vega" ISA: DS_GWS_INIT, DS_GWS_BARRIER

A barrier counts down; who comes when it stands at 0 sets it again, to the number in its own register, and releases all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.order import DEVICE, Order
from hcq.emu.shader.residency import Needs, look
from hcq.events.kernel_faults import Site


def first_lanes(b: Batch, register: int) -> Array:
    """(wave,) numbers: a vector register in the first lane that is on."""
    lanes = b.lanes.argmax(axis=1)
    return np.asarray(b.u32[register])[np.arange(b.waves), lanes]


def numbers(ctx: Context, b: Batch) -> list[int]:
    """Which resource each wave means."""
    offset = ctx.inst.fields["offset0"] | ctx.inst.fields["offset1"] << 8
    return [int(m0 >> 16 & 63) + offset for m0 in b.s[:, ctx.m0].tolist()]


def _order(b: Batch) -> Order | None:
    """That of the waves, where races matter and anything orders workgroups."""
    races = b.residents.races
    return races.order if races is not None and races.order.syncs else None


def _look(ctx: Context, b: Batch, checks: Checks) -> None:
    """Whether a real GPU could hold all workgroups."""
    residents, pc = b.residents, ctx.inst.pc
    launch, items = residents.launch, residents.items
    needs = Needs(ctx.isa.arch, items.groups, items.block, launch.wave_size, launch.vgprs, launch.lds_bytes)
    look(checks, needs, Site("waits", ctx.inst.name, pc, b.lane_names(0, 0)))


def init(ctx: Context) -> Callable[[Batch], list[Batch]]:
    """ds_gws_init: how many waves a barrier waits for, less one."""
    inst = ctx.inst

    def run(b: Batch) -> list[Batch]:
        values = first_lanes(b, inst.fields["addr"]).tolist()
        for number, value in zip(numbers(ctx, b), values):
            barrier = b.residents.sync.of(number)
            barrier.left, barrier.turn = int(value), 0
        b.pc = inst.next_pc
        return [b]

    return run


def wait(ctx: Context) -> Callable[[Batch], list[Batch]]:
    """ds_gws_barrier: arrive once, then look again until all are released."""
    inst = ctx.inst

    def run(b: Batch) -> list[Batch]:
        if b.residents.barrier_checks is not None:
            _look(ctx, b, b.residents.barrier_checks)
        waits_in, order = b.residents.waits_in, _order(b)
        values = first_lanes(b, inst.fields["addr"]).tolist()
        barriers = [b.residents.sync.of(number) for number in numbers(ctx, b)]
        for wave, barrier, value in zip(b.ids.tolist(), barriers, values):
            if waits_in[wave] >= 0:
                continue
            waits_in[wave] = barrier.turn
            if order is not None:
                known = barrier.here if barrier.records is order.records else 0
                barrier.here = order.arrive(int(b.residents.number_of[wave]), known)
                barrier.records = order.records
            if barrier.left > 0:
                barrier.left -= 1
            else:
                barrier.left, barrier.turn = int(value), barrier.turn + 1
                barrier.gone, barrier.here = barrier.here, 0
        goes = np.array([waits_in[wave] != one.turn for wave, one in zip(b.ids.tolist(), barriers)])
        waits_in[b.ids[goes]] = -1
        if order is not None:
            for wave, barrier, is_free in zip(b.ids.tolist(), barriers, goes.tolist()):
                if is_free:
                    order.leave(int(b.residents.number_of[wave]), barrier.gone)
            # all have come, and the fence that a device library has is before it: what each has in its caches is from
            # before its own fence, and nobody loads between that and the barrier
            order.acquire(b.residents.number_of[b.ids[goes]], DEVICE)
        if goes.all():
            b.pc = inst.next_pc
            return [b]
        b.pc = inst.pc
        if not goes.any():
            return [b]
        gone, stays = b.take(goes), b.take(~goes)
        gone.pc = inst.next_pc
        gone.turn = stays.turn = b.turn
        return [gone, stays]

    return run
