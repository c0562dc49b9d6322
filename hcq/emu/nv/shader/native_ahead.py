"""What is compiled, and when: before a launch runs, by what it has taken, and will take, the interpreter.

In       a program, a launch; a function, what it is compiled for
Out      its machine code, from memory, from disk or from LLVM; how many lanes run at once
Changes  the Decoded, which keeps the machine code; the disk cache
Next     native.py (runs it), native_kept.py (the disk), native_text.py (the code)

A function is compiled once it has taken the interpreter, by estimate, as long as compiling it would take, or the next
launch will. Code that is on disk is taken much earlier. Kernels that are looked at while they run (counters, races,
debuggers), that run under a schedule or as clusters of several blocks, and memory that is behind emulated caches or of
other processes, are always the interpreter's.
"""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING

from hcq import config
from hcq.emu.compiled import assemble
from hcq.emu.nv.shader import native_kept, native_library
from hcq.emu.nv.shader.batch import WARP, Launch
from hcq.emu.nv.shader.decode import Decoded
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.native_state import Compiled

if TYPE_CHECKING:
    from hcq.emu.nv.shader.program import Program

COMPILE_NS = 500_000  # LLVM and this compiler: for each instruction,
BEGIN_NS = 20_000_000  # and for a function
LOAD_NS = 2_500_000  # code that is on disk
STEP_NS, LANE_NS = 8_000, 1.5  # the interpreter: for each instruction, and for each lane of it
TURNS = 8  # how often a loop is taken to run, where nobody has seen it run
MOST_LOOPS = 2  # within one another, of which that is said
LANES = 65536  # that run at once, of kernels that are machine code from end to end

Key = tuple[bool, int, int]


def may_run(program: Program, launch: Launch) -> bool:
    """Whether a launch may run as machine code."""
    if not may_reach(launch.memory) or launch.tally is not None:
        return False
    if prod(launch.cluster) > 1:  # their blocks meet, and reach into one another's shared memory
        return False
    return program.entry.lowering is not None


def may_reach(memory: Memory) -> bool:
    """Whether machine code may run, and in this memory: an AddressSpace, and none that has more to do."""
    return config.current().emu_compiled != "0" and getattr(memory, "is_plain", False)


def is_eager() -> bool:
    """Whether everything is compiled before it runs first."""
    return config.current().emu_compiled == "always"


def key_of(launch: Launch) -> Key:
    """What the code of a launch depends on besides its text: does each warp belong to one block, where are windows?"""
    width = prod(launch.block)
    return launch.uses_warps or width % WARP == 0, launch.shared_window, launch.local_window


def look_ahead(program: Program, launch: Launch, blocks: int, at_once: int) -> int:
    """Before a launch of so many blocks: compile what will be worth it. Returns how many blocks run at once."""
    if not may_run(program, launch):
        return at_once
    width, key, entry = prod(launch.block), key_of(launch), program.entry
    known = key in entry.native
    expected = 0.0 if known else _expected_ns(entry, width * min(at_once, blocks), -(-blocks // at_once))
    _, found = code_of(entry, key, expected, is_eager())
    facts = None if found is None else found.facts
    if facts is None or facts.why_not or facts.gathers or launch.shared_bytes:
        return at_once  # where floats are summed, it is in the order of the interpreter's batches
    return max(at_once, LANES // width)


def _expected_ns(decoded: Decoded, lanes: int, batches: int) -> float:
    """What a launch takes the interpreter, as far as its text tells."""
    deep = [0] * len(decoded.blocks)
    for number, block in enumerate(decoded.blocks):
        for after in block.next:
            if after <= number:
                for inside in range(after, number + 1):
                    deep[inside] += 1
    steps: int = sum(
        block.length * TURNS ** min(depth, MOST_LOOPS) for block, depth in zip(decoded.blocks, deep)
    )
    return steps * (STEP_NS + LANE_NS * lanes) * batches


def code_of(decoded: Decoded, key: Key, expected_ns: float, is_eager: bool) -> tuple[bool, Compiled | None]:
    """Whether it is known if there is machine code, and the code.

    expected_ns  what will be run next takes the interpreter so long
    """
    if key in decoded.native:
        return True, decoded.native[key]
    spent = decoded.spent_ns + expected_ns
    if spent < LOAD_NS and not is_eager:
        return False, None
    if assemble.tools() is None:  # it is asked here: loading it takes longer than most kernels
        decoded.native[key] = None
        return True, None
    if key not in decoded.asked:
        decoded.asked.add(key)
        kept = native_kept.load(decoded, key)
        if kept is not None:
            _say(decoded, "taken from disk", len(kept.facts.entries), kept.facts.why_not)
            decoded.native[key] = kept
            return True, kept
    if spent < BEGIN_NS + COMPILE_NS * len(decoded.function.body) and not is_eager:
        return False, None
    made = decoded.native[key] = _compile(decoded, key)
    return True, made


def _say(decoded: Decoded, what: str, entries: int, why_not: dict[str, str]) -> None:
    """HCQ_DEBUG=code: what is left to the interpreter."""
    if "code" not in config.current().debug:
        return
    names = ", ".join(f"{name} ({why})" for name, why in sorted(why_not.items())) or "none"
    body = decoded.function.body
    left = sum(".".join((one.opcode, *one.modifiers)) in why_not for one in body)
    sys.stderr.write(
        f"hcq: {decoded.function.name} is {what}: {entries} entries; interpreted are {left} of {len(body)} "
        f"instructions: {names}\n"
    )


def _compile(decoded: Decoded, key: Key) -> Compiled | None:
    """Machine code for a function; None where none of it can be compiled."""
    from hcq.emu.nv.shader.native_text import Translator

    text = Translator(decoded, key[0], key[1:]).translate()
    _say(decoded, "compiled", len(text.entries), text.why_not)
    if not text.entries:
        return None
    native_library.need(text.libraries)
    made = Compiled(decoded, text.facts(), assemble.Assembled(text.ir))
    native_kept.keep(decoded, key, made)
    return made
