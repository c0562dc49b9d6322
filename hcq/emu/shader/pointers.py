"""Pointers: which arguments of a kernel an address was made from, for checks of its accesses.

In       what is known of the device's memory; what instructions make of values that came from arguments
Out      Origin, and how origins meet; the buffers that an argument points into
Next     memory_checks.py (who checks), ../amd/shader/pointers.py and ../nv/shader/pointers.py (who follow values)

A value is a number, or was made from one or several arguments that point into buffers, or nobody knows. What is not
certain is unknown: addresses that were loaded from memory, differences of pointers, values that are now a number and
now a pointer. Only a sum of one pointer and numbers stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hcq.events.known_memory import KnownMemory, Stretch

# offsets of the arguments that it may have been made from; none: a number; None: unknown
Origin = frozenset[int] | None
NUMBER: Origin = frozenset()
UNKNOWN: Origin = None
MOST_ORIGINS = 4
LARGEST_NUMBER = 1 << 32  # a value up to there, or as little below zero, is no address


def joined(first: Origin, second: Origin) -> Origin:
    """Of a value that is now the one and now the other."""
    if first == second:
        return first
    if not first or not second or len(first | second) > MOST_ORIGINS:
        return UNKNOWN
    return first | second


def added(*parts: Origin) -> Origin:
    """Of a sum."""
    found = [part for part in parts if part != NUMBER]
    return found[0] if len(found) == 1 else UNKNOWN if found else NUMBER


def mixed(*parts: Origin) -> Origin:
    """Of anything else that is made of values."""
    return NUMBER if all(part == NUMBER for part in parts) else UNKNOWN


def of_number(value: int) -> Origin:
    """Of 64 bits of which nobody has said what they are."""
    value %= 1 << 64
    return NUMBER if value < LARGEST_NUMBER or value >= (1 << 64) - LARGEST_NUMBER else UNKNOWN


def of_argument(known: KnownMemory, offset: int, value: int, is_mapped: Callable[[int], bool]) -> Origin:
    """Of a kernel's argument, by its value in this launch."""
    if buffers_at(known, value):
        return frozenset([offset])
    return of_number(value) if is_mapped(value) else NUMBER


def buffers_at(known: KnownMemory, value: int) -> list[Stretch]:
    """The buffer that a pointer is into; with the one that ends there, which an iterator behind its end may mean."""
    inside = [one for one in known.buffers if one.start <= value < one.end]
    return [*inside, *(one for one in known.buffers if one.end == value)] if inside else []


def classes_of(known: KnownMemory, arguments: bytes, memory: object) -> tuple[tuple[int, Origin], ...]:
    """The Origin of each eight bytes of a launch's arguments, by their offsets: what says where pointers come from.

    memory  the address space, which may know what is mapped
    """
    find = getattr(memory, "find", None)

    def is_mapped(address: int) -> bool:
        return find is None or find(address) is not None

    numbers = ((at, int.from_bytes(arguments[at : at + 8], "little")) for at in range(0, len(arguments), 8))
    return tuple((at, of_argument(known, at, number, is_mapped)) for at, number in numbers)


def reach_of(
    known: KnownMemory, arguments: bytes, origins: Mapping[int, Origin]
) -> dict[int, tuple[Stretch, ...]]:
    """Where each access may go: the buffers that its pointer was made from. By places of instructions."""
    buffers = {
        at: buffers_at(known, int.from_bytes(arguments[at : at + 8], "little"))
        for at in {at for origin in origins.values() for at in origin or ()}
    }
    return {
        place: tuple(one for at in sorted(origin) for one in buffers[at])
        for place, origin in origins.items()
        if origin and all(buffers[at] for at in origin)
    }
