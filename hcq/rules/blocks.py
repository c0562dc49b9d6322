"""Rules on memory that the device reads after the doorbell: blocks of packets, rings, arenas of arguments.

In       Run effects; what a driver says before it writes into a ring or an arena
Out      block-out-of-bounds, block-nested, block-modified, block-shared, ring-overrun, arena-overrun
Changes  what blocks held when they last ran
Next     examine.py (reads a block and looks at its packets), docs/rules/
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.rules.effects import Run
from hcq.rules.rule import Violation, check, rule
from hcq.rules.state import GraphBlock
from hcq.rules.submission_check import SubmissionCheck

BLOCK_OUT_OF_BOUNDS = rule(
    "block-out-of-bounds",
    "A block of packets is completely inside one live buffer and is a whole number of words.",
    "Take address and size from the buffer that the packets were written to.",
)
BLOCK_NESTED = rule(
    "block-nested",
    "A block of packets does not run another block.",
    "Record the packets of both into one block, or submit the blocks one after the other.",
)
BLOCK_MODIFIED = rule(
    "block-modified",
    "A block of packets is not written to while a submission that runs it is in flight.",
    "Wait for the last submission that runs it, or take two copies in turn as Graph does.",
)
BLOCK_SHARED = rule(
    "block-shared",
    "Two graphs do not share the memory of their blocks.",
    "Give each graph a buffer of its own.",
)
RING_OVERRUN = rule(
    "ring-overrun",
    "A write to a ring does not overwrite packets that the device has not read yet.",
    "Wait until the read pointer has moved on.",
)
ARENA_OVERRUN = rule(
    "arena-overrun",
    "Kernel arguments and push buffers are not written to while a submission in flight reads them.",
    "Wait for the submission that uses the space, or make the arena larger.",
)


@check(Run)
def block(submission: SubmissionCheck, effect: Run) -> Iterator[Violation]:
    """The block is there, is not inside another, and holds still."""
    size_bytes = 4 * effect.size_words
    state, buffer = submission.state.memory.place(effect.address, size_bytes)
    if submission.depth:
        yield Violation(
            BLOCK_NESTED, f"a block of packets runs the block at {effect.address:#x}", effect.address
        )
    elif state in ("unmapped", "freed") or effect.address % 4 or not effect.size_words:
        text = f"{effect.size_words} words at {effect.address:#x} are {state if effect.size_words else 'no'} memory"
        if effect.address % 4:
            text = f"the block's address {effect.address:#x} is not a multiple of 4"
        yield Violation(BLOCK_OUT_OF_BOUNDS, text, effect.address)
    elif buffer is not None and effect.address + size_bytes > buffer.end:
        text = f"{effect.size_words} words at {effect.address:#x} end behind {buffer}"
        yield Violation(BLOCK_OUT_OF_BOUNDS, text, effect.address)


def still(submission: SubmissionCheck, effect: Run, label: str, words: bytes) -> Iterator[Violation]:
    """Compare a block with how it was when it last ran, and remember it."""
    end = effect.address + 4 * effect.size_words
    memory, blocks = submission.state.memory, submission.state.blocks
    home = memory.find(effect.address)
    for other in list(blocks.values()):
        if other.home is not memory.find(other.address):
            del blocks[other.address]  # its buffer has another owner now
        elif other.address == effect.address:
            if other.words != words and not other.device.finished(other.submission):
                text = (
                    f"{label} was changed while submission #{other.submission} of {other.device.name} runs it"
                )
                yield Violation(BLOCK_MODIFIED, text, effect.address)
        elif other.address < end and effect.address < other.address + 4 * other.size_words:
            text = f"{label} at {effect.address:#x} shares memory with {other.label} at {other.address:#x}"
            yield Violation(BLOCK_SHARED, text, effect.address)
    submission.blocks.append(
        GraphBlock(effect.address, effect.size_words, label, words, home, submission.device, submission.value)
    )


def room(name: str, put: int, size: int, get: int, capacity: int) -> Iterator[Violation]:
    """A driver is about to write `size` units at `put` into a ring of `capacity`; the device has read up to `get`."""
    if size > capacity or put + size - get > capacity:
        text = (
            f"{size} words are to be written to {name} at {put}; it holds {capacity}, and is read up to {get}"
        )
        yield Violation(RING_OVERRUN, text)


def reuse(name: str, va: int, size_bytes: int, used_until: int, done: int) -> Iterator[Violation]:
    """A driver is about to write into an arena whose last user is submission `used_until`; `done` have finished."""
    if used_until > done:
        text = f"{size_bytes} bytes at {va:#x} of {name} are to be written; submission #{used_until} still uses them"
        yield Violation(ARENA_OVERRUN, text, va)
