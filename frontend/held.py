"""What sys.getrefcount counts of a value that nobody else holds.

In       nothing: it is measured, as releases of Python count the variables of a function differently (3.14 and later
         lend a variable to a call where earlier ones give it a reference)
Out      IN_A_TUPLE, of a variable that was unpacked from a tuple; PASSED, of an argument that is a caller's variable
Next     observe.py, places.py and replay.py, which ask whether somebody else could see a change
"""

from __future__ import annotations

from sys import getrefcount


def _in_a_tuple() -> int:
    counts = [getrefcount(item) for item, _ in [(object(), None)]]
    return counts[0]


def _passed() -> int:
    item = object()
    return _count(item)


def _count(item: object) -> int:
    return getrefcount(item)


IN_A_TUPLE = _in_a_tuple()
PASSED = _passed()
