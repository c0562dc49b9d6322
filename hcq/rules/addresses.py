"""Rules on addresses: that memory is there, is ours, is large enough, and holds something.

In       effects that name memory
Out      address-unmapped, address-freed, address-direction, address-unaligned, range-beyond-buffer, copy-overlap,
         read-unwritten, signal-overwritten, patch-unbound
Next     memory.py (what is known of buffers), docs/rules/
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.events.stray_accesses import Stray
from hcq.rules.effects import Access, Copy, Fill, Launch, Signal, Wait
from hcq.rules.memory import Allocation
from hcq.rules.rule import Violation, check, rule
from hcq.rules.signals import plain_bytes
from hcq.rules.submission_check import SubmissionCheck

ADDRESS_UNMAPPED = rule(
    "address-unmapped",
    "Every address that a packet names lies in memory that is mapped for the device.",
    "Take the address from a Buffer of this device.",
)
ADDRESS_FREED = rule(
    "address-freed",
    "No packet names memory of a buffer that was freed before the submission.",
    "Keep a reference to the buffer until its last use is submitted.",
)
ADDRESS_DIRECTION = rule(
    "address-direction",
    "Memory is only written where the device may write, and read where it may read.",
    "Use another buffer, or map this one for this direction.",
)
ADDRESS_UNALIGNED = rule(
    "address-unaligned",
    "Addresses have the alignment that the packet requires.",
    "Allocate a new buffer, or choose an aligned offset.",
)
RANGE_BEYOND_BUFFER = rule(
    "range-beyond-buffer",
    "A range that a packet names ends in the buffer in which it begins.",
    "Make the size smaller, or the buffer larger: the memory behind it belongs to other buffers.",
)
COPY_OVERLAP = rule(
    "copy-overlap",
    "The two ranges of a copy do not overlap, unless the engine supports that.",
    "Copy by way of a third buffer.",
)
READ_UNWRITTEN = rule(
    "read-unwritten",
    "Memory is written before it is read, by the host or by the device.",
    "Write or fill the buffer first; the contents of new buffers are undefined.",
    level="warning",
)
SIGNAL_OVERWRITTEN = rule(
    "signal-overwritten",
    "Copies, fills and other packets do not write over signals.",
    "Give the signal memory of its own, and make the range end before it.",
)
STORE_BEYOND = rule(
    "store-beyond-buffer",
    "A kernel does not store beyond the end of a buffer (checked on emulated GPUs).",
    "Launch fewer threads, mask those beyond the end, or make the buffer as large as the kernel assumes.",
    level="warning",
)
PATCH_UNBOUND = rule(
    "patch-unbound",
    "A replay gives a value for every argument of the graph.",
    "Replay the graph with Graph.replay({key: value}), which writes all patch points.",
)


def behind_buffer(stray: Stray, name: str, va: int, size_bytes: int) -> Violation:
    """What an emulated GPU has found; it is told when the launch has run. Name, address and size of the buffer."""
    what, where = repr(stray.text) if stray.text else "it", f"{name or 'a buffer'}+{stray.address - va}"
    more = f", and {stray.times - 1} more there" if stray.times > 1 else ""
    return Violation(
        STORE_BEYOND,
        f"{what} stores {stray.size_bytes} bytes at {where}, which has {size_bytes} bytes{more}",
        va,
    )


@check(Access, Fill, Copy, Wait, Signal, Launch)
def addresses(
    submission: SubmissionCheck, effect: Access | Fill | Copy | Wait | Signal | Launch
) -> Iterator[Violation]:
    """Every range that an effect names lies in one live buffer and may be used that way."""
    if isinstance(effect, Launch):
        memory = submission.state.memory
        for arg in effect.arguments:
            if arg.kind == "buffer":
                block = memory.live.get(arg.value) if not memory._gone else None  # the usual case, at once
                if block is None or arg.size_bytes or arg.access or block.stand_in:
                    what = f"argument {arg.position}"
                    access = arg.access if arg.access and arg.size_bytes else "any"
                    yield from _range(submission, arg.value, arg.size_bytes, access, what)
    elif isinstance(effect, Copy):
        yield from _range(submission, effect.src, effect.size_bytes, "read", "source")
        yield from _range(submission, effect.dst, effect.size_bytes, "write", "destination")
    elif isinstance(effect, Fill):
        yield from _range(submission, effect.dst, effect.size_bytes, "write", "destination")
    elif isinstance(effect, Access):
        access = "write" if effect.is_write else "read"
        yield from _range(submission, effect.va, effect.size_bytes, access, effect.what)
    elif isinstance(effect, Wait):
        yield from _range(submission, effect.cell, _cell_bytes(submission, effect), "read", "signal")
    elif isinstance(effect, Signal) and effect.cell != submission.device.timeline:
        yield from _range(submission, effect.cell, _cell_bytes(submission, effect), "write", "signal")


def _cell_bytes(submission: SubmissionCheck, effect: Wait | Signal) -> int:
    """How much of a signal packets use: all of it; of an ordinary buffer what they store or compare."""
    is_signal = submission.is_signal(effect.cell)
    return submission.model.signal_bytes if is_signal else plain_bytes(submission, effect)


def _range(submission: SubmissionCheck, va: int, size: int, access: str, what: str) -> Iterator[Violation]:
    if not size and access != "any":
        return
    state, block = submission.state.memory.place(va, size)
    if state == "unmapped":
        near = submission.state.memory.neighbour(va)
        text = f"{what} {va:#x} lies in no mapped memory"
        if near is not None:
            text += f"; the nearest buffer below is {near}, which ends {va - near.end} bytes before"
        yield Violation(ADDRESS_UNMAPPED, text, va)
    elif state == "freed":
        yield Violation(ADDRESS_FREED, f"{what} {va:#x} lies in {block}, which was freed", va)
    elif block is not None:
        yield from _in_block(submission, block, va, size, access, what)


def _in_block(
    submission: SubmissionCheck, block: Allocation, va: int, size: int, access: str, what: str
) -> Iterator[Violation]:
    if block.stand_in:
        yield Violation(PATCH_UNBOUND, f"{what} still is the stand-in of {block.stand_in}", va)
    elif va + size > block.end:
        over = va + size - block.end
        yield Violation(
            RANGE_BEYOND_BUFFER, f"{what} of {size} bytes at {va:#x} ends {over} bytes behind {block}", va
        )
    elif block.access != "both" and access not in ("any", block.access):
        may = "read" if block.access == "read" else "written"
        yield Violation(
            ADDRESS_DIRECTION, f"{what} is to be {_done(access)}, and {block} may only be {may}", va
        )


def _done(access: str) -> str:
    return {"read": "read", "write": "written", "both": "read and written"}[access]


@check(Access, Fill, Copy)
def alignment(submission: SubmissionCheck, effect: Access | Fill | Copy) -> Iterator[Violation]:
    """Check: addresses are multiples of what the packet demands."""
    if isinstance(effect, Copy):
        places = [("source", effect.src), ("destination", effect.dst)]
    elif isinstance(effect, Fill):
        places = [("destination", effect.dst)]
    else:
        places = [(effect.what, effect.va)]
    for what, va in places:
        if va % effect.alignment:
            yield Violation(ADDRESS_UNALIGNED, f"{what} {va:#x} is not a multiple of {effect.alignment}", va)


@check(Copy)
def overlap(submission: SubmissionCheck, effect: Copy) -> Iterator[Violation]:
    """Check: source and destination share nothing, unless the copy is made for that."""
    shared = min(effect.dst, effect.src) + effect.size_bytes - max(effect.dst, effect.src)
    if shared > 0 and not effect.may_overlap:
        yield Violation(COPY_OVERLAP, f"source and destination share {shared} bytes", effect.dst)


@check(Copy, Launch)
def unwritten(submission: SubmissionCheck, effect: Copy | Launch) -> Iterator[Violation]:
    """Check: what is read was written before, where every write of the host is known."""
    if not submission.state.knows_host_writes or submission.agent.open:
        return
    if isinstance(effect, Copy):
        sources = [("it is copied from", effect.src)] if effect.size_bytes else []
    else:
        reads = [arg for arg in effect.arguments if arg.kind == "buffer" and arg.access in ("read", "both")]
        sources = [(f"it is read as argument {arg.position}", arg.value) for arg in reads]
    for what, va in sources:
        block = submission.state.memory.find(va)
        if block is not None and block.size_bytes and not block.is_written:
            yield Violation(READ_UNWRITTEN, f"nobody ever wrote to {block}, and {what}", va)


@check(Access, Fill, Copy)
def over_signal(submission: SubmissionCheck, effect: Access | Fill | Copy) -> Iterator[Violation]:
    """Check: nothing but a signal's own packets writes to its cell."""
    if isinstance(effect, Access):
        if not effect.is_write:
            return
        low, size = effect.va, effect.size_bytes
    else:
        low, size = effect.dst, effect.size_bytes
    block = submission.state.memory.find(low)
    if block is None:
        return
    for cell in _cells_in(submission, low, min(low + size, block.end)):
        text = f"{size} bytes are written at {low:#x}, over the signal at {cell:#x}"
        yield Violation(SIGNAL_OVERWRITTEN, text, cell)


def _cells_in(submission: SubmissionCheck, low: int, high: int) -> list[int]:
    cells, size = submission.state.cells, submission.model.signal_bytes
    if high - low <= 64 * 8:
        near = [va for va in range(low - low % 8 - size + 8, high, 8) if va in cells and va + size > low]
        return [va for va in near if submission.is_signal(va)]
    return [va for va in list(cells) if va < high and va + size > low and submission.is_signal(va)][:1]
