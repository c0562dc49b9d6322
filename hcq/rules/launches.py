"""Rules on launches: that the program is there, that the hardware can do it, and that it agrees with the code object.

In       Launch effects; what is known of the program; the limits of the device
Out      program-unknown, program-unloaded, grid-limit, block-limit, shared-limit, scratch-limit, register-limit,
         argument-count, argument-size, argument-alignment
Next     effects.py (Launch, Limits, ProgramFacts), docs/rules/
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hcq.events.stray_accesses import Stray
from hcq.rules.effects import Launch, Limits, ProgramFacts
from hcq.rules.kernels import SHARED_BEYOND
from hcq.rules.rule import Rule, Violation, check, rule
from hcq.rules.submission_check import SubmissionCheck

PROGRAM_UNKNOWN = rule(
    "program-unknown",
    "A launch starts at the entry of a program that was loaded on the device.",
    "Load the code object with Device.load and launch through the Program.",
)
PROGRAM_UNLOADED = rule(
    "program-unloaded",
    "A program is still loaded when a launch of it is submitted.",
    "Keep a reference to the Program as long as recorded work launches it.",
)
GRID_LIMIT = rule(
    "grid-limit",
    "A grid has at least one group in each direction and no more than the device can count.",
    "Split the launch, or give each group more work.",
)
BLOCK_LIMIT = rule(
    "block-limit",
    "A block has at least one thread in each direction, and no more than the device and the program allow.",
    "Make the block smaller and the grid larger, or compile the kernel for this block.",
)
SHARED_LIMIT = rule(
    "shared-limit",
    "A launch asks for as much shared memory as the program needs, and no more than a group can have.",
    "Take the size from the code object; when it is too large, stage less at a time.",
)
SCRATCH_LIMIT = rule(
    "scratch-limit",
    "A launch asks for as much scratch memory as the program needs, and no more than the device has.",
    "Take the size from the code object, and load the program before its launch is encoded.",
)
REGISTER_LIMIT = rule(
    "register-limit",
    "A launch asks for as many registers as the program uses, and no more than a thread can have.",
    "Take the number from the code object; when it is too large, compile with fewer or use smaller blocks.",
)
ARGUMENT_COUNT = rule(
    "argument-count",
    "A launch carries as many arguments as the program takes.",
    "Give the arguments in the order of the kernel's parameters, each once.",
)
ARGUMENT_SIZE = rule(
    "argument-size",
    "The block of arguments has the size that the code object declares.",
    "Lay the arguments out by the code object's own table.",
)
ARGUMENT_ALIGNMENT = rule(
    "argument-alignment",
    "A buffer argument has the alignment that the program was compiled for.",
    "Pass a buffer, or a view at an aligned offset.",
)


def beyond_shared(stray: Stray) -> Violation:
    """What an emulated GPU has found; it is told when the launch has run."""
    more = f", and {stray.times - 1} more" if stray.times > 1 else ""
    return Violation(
        SHARED_BEYOND,
        f"{stray.text!r} reaches bytes {stray.address} to {stray.address + stray.size_bytes - 1} of {stray.limit} of "
        f"shared memory, in {stray.who}{more}",
    )


@check(Launch)
def program(submission: SubmissionCheck, effect: Launch) -> Iterator[Violation]:
    """The program is loaded, and the launch's arguments are the program's."""
    facts = submission.kernel
    if facts is None:
        gone = submission.device.unloaded.get(effect.entry)
        if gone is None:
            yield Violation(PROGRAM_UNKNOWN, f"no loaded program starts at {effect.entry:#x}")
        else:
            yield Violation(PROGRAM_UNLOADED, f"{gone.name} started at {effect.entry:#x} and was unloaded")
        return
    if facts.args is not None and effect.carried is not None and effect.carried != len(facts.args):
        takes = f"{len(facts.args)} arguments ({', '.join(facts.args)})"
        yield Violation(
            ARGUMENT_COUNT, f"{facts.name} takes {takes}, and the packet carries {effect.carried}"
        )
    if facts.argument_bytes is not None and effect.argument_bytes not in (None, facts.argument_bytes):
        takes = f"{facts.argument_bytes} bytes of arguments"
        yield Violation(
            ARGUMENT_SIZE, f"{facts.name} takes {takes}, and the packet gives {effect.argument_bytes}"
        )
    for arg in effect.arguments:
        if arg.alignment > 1 and arg.value % arg.alignment:
            text = f"argument {arg.position} is {arg.value:#x}, not a multiple of {arg.alignment}"
            yield Violation(ARGUMENT_ALIGNMENT, text, arg.value)


@check(Launch)
def sizes(submission: SubmissionCheck, effect: Launch) -> Iterator[Violation]:
    """Grid and block are within the limits."""
    limits = submission.model.limits
    for size, most, found in (
        (effect.grid, limits.grid, GRID_LIMIT),
        (effect.block, limits.block, BLOCK_LIMIT),
    ):
        what = found.id.partition("-")[0]
        if min(size) < 1:
            yield Violation(found, f"its {what} is {size}: {min(size)} in one direction is nothing to run")
        elif most is not None and (size[0] > most[0] or size[1] > most[1] or size[2] > most[2]):
            yield Violation(found, f"its {what} is {size}, and the device takes at most {most}")
            return
    facts, threads = submission.kernel, prod(effect.block)
    if facts is not None and facts.block is not None and effect.block != facts.block:
        yield Violation(
            BLOCK_LIMIT, f"its block is {effect.block}, and {facts.name} was compiled for {facts.block}"
        )
        return
    for most_threads, whose in ((facts.threads if facts else None, "the program was compiled for"),
                                (limits.threads, "the device runs")):  # fmt: skip
        if most_threads is not None and threads > most_threads:
            yield Violation(
                BLOCK_LIMIT, f"its block has {threads} threads, and {whose} at most {most_threads}"
            )
            return


@check(Launch)
def resources(submission: SubmissionCheck, effect: Launch) -> Iterator[Violation]:
    """What the packets ask for is what the code object says, and what the hardware has."""
    limits, facts = submission.model.limits, submission.kernel
    yield from _resource(
        SHARED_LIMIT, "bytes of shared memory", effect.shared_bytes, "shared_bytes", limits, facts
    )
    yield from _resource(
        SCRATCH_LIMIT, "bytes of scratch memory", effect.scratch_bytes, "scratch_bytes", limits, facts
    )
    yield from _resource(REGISTER_LIMIT, "registers", effect.registers, "registers", limits, facts)


def _resource(
    broken: Rule, what: str, asked: int | None, name: str, limits: Limits, facts: ProgramFacts | None
) -> Iterator[Violation]:
    if asked is None:
        return
    most = getattr(limits, name)
    needs = None if facts is None else getattr(facts, name)
    if most is not None and asked > most:
        yield Violation(broken, f"it asks for {asked} {what}, and the device has at most {most}")
    elif needs is not None and asked < needs:
        yield Violation(
            broken, f"it asks for {asked} {what}, and {facts.name if facts else ''} needs {needs}"
        )
