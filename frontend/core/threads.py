"""Threads: the lock that changes of tensors are made under, and the writes that a thread must not do a second time.

In       threads of the program, each with tensors of its own or with some that they share
Out      `lock`; `are_threads`; the writes in place that have been done
Changes  the table of writes that have been done
Next     base.py (`Live.own`: whose a tensor is), run/realize.py and views.py (who change tensors), docs/threads.md

Methods read the nodes of tensors without the lock and make new tensors of them. What changes a tensor that exists has
the lock from its first look at it on: a write in place, a computation that puts memory in the place of a graph. A
computation changes only what it was asked for and the tensors of its own thread, for equal graphs are one node, also
where two threads made them. What another thread still needs of memory is left there: the write goes to a copy.
"""

from __future__ import annotations

import _thread
import os
import threading
from typing import Any
from weakref import WeakKeyDictionary

from hcq.ir.node import Node

# one thread schedules or writes at a time
lock = threading.RLock()

# writes in place that have been done, each with the memory, or that are done elsewhere, each with what is done there:
# a thread that has read such a node just before may still use it
_done: WeakKeyDictionary[Node, Node] = WeakKeyDictionary()
_is_any_done = False  # since there have been threads


def are_threads() -> bool:
    """Whether the process has threads besides the main one."""
    return _thread._count() > 0


def note_done(writes: dict[Node, Node]) -> None:
    """These ASSIGN nodes have been done, and mean what is in memory now, or another write. Under the lock."""
    global _is_any_done
    if writes and are_threads():
        _done.update(writes)
        _is_any_done = True


def new_write(node: Node) -> Node:
    """An ASSIGN node that is to be done, whether or not one like it was done before. Under the lock."""
    if _is_any_done:
        _done.pop(node, None)
    return node


def without_done(*tensors: Any) -> None:
    """Have tensors read memory where their graphs have writes that have been done. Under the lock."""
    if not _is_any_done or not _done:
        return
    for tensor in tensors:
        while found := {node: new for node in tensor.node.toposort() if (new := _done.get(node)) is not None}:
            tensor.node = tensor.node.substitute(found)


def _after_fork() -> None:
    if not lock._is_owned():  # type: ignore[attr-defined]
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # another thread of the parent may have had it


os.register_at_fork(after_in_child=_after_fork)
