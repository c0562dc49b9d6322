"""Structure: what a lazy graph says, apart from which memory it reads. Equal structures run the same plan.

In       roots
Out      a `Structure`: a hashable key, the storages in the order the key numbers them, which roots carry gradients
Next     run/plan.py (plans are kept by this key, in memory and on disk)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hcq.frontend.core.storage import Storage
from hcq.ir.node import Node
from hcq.ir.op import Op


class Structure(NamedTuple):
    """A graph without its memory.

    key       equal for graphs that differ only in the memory they read
    storages  the memory, as the key numbers it
    tracked   per root: True when a gradient can flow through it
    assigns   True when something is written in place
    copies    True when something comes from another device
    """

    key: tuple[Any, ...]
    storages: list[Storage]
    tracked: list[bool]
    assigns: bool
    copies: bool

    def digest(self) -> str:
        """The key as a name that is the same in every process."""
        import hashlib

        return hashlib.sha256(repr(self.key).encode()).hexdigest()


def structure_of(roots: Sequence[Node]) -> Structure:
    """Number the graph's nodes, sources first, and write down each one's content."""
    number: dict[Node, int] = {}
    tracked: list[bool] = []
    words: list[Any] = []
    storages: list[Storage] = []
    assigns = copies = False
    stack: list[Node] = []
    for root in roots:
        if root in number:
            continue
        stack.append(root)
        while stack:
            node = stack[-1]
            if node in number:
                stack.pop()
                continue
            src = node.src
            if src:
                try:
                    at = [number[s] for s in src]
                except KeyError:
                    stack.extend([s for s in reversed(src) if s not in number])
                    continue
                op = node.op
                is_cut = False
                if op is Op.ASSIGN:
                    assigns = is_cut = True
                elif op is Op.DETACH:
                    is_cut = True
                elif op is Op.COPY:
                    copies = copies or not getattr(node.arg, "is_here", False)
                words.append((op, node.dtype, node.arg, *at))
                is_tracked = op is Op.FUNCTION and node.arg.is_tracked
                if is_cut:  # what a leaf was written as under no_grad() is that leaf
                    tracked.append(op is Op.ASSIGN and src[0].op is Op.BUFFER and src[0].arg.tracked)
                else:
                    tracked.append(is_tracked or any(tracked[i] for i in at))
            elif node.op is Op.BUFFER:
                storage = node.arg
                storages.append(storage)
                place = storage.device if type(storage) is Storage else storage.place
                words.append((Op.BUFFER, node.dtype, storage.shape, place))
                tracked.append(storage.tracked)
            else:
                words.append((node.op, node.dtype, _constant(node.arg)))
                tracked.append(False)
            number[node] = len(number)
            stack.pop()
    words.append(tuple([number[root] for root in roots]))
    return Structure(tuple(words), storages, [tracked[number[root]] for root in roots], assigns, copies)


def _constant(value: Any) -> Any:
    """A number as a key: 0.0 and -0.0 differ, NaN equals itself."""
    return value if type(value) is not float or (value == value and value != 0.0) else repr(value)
