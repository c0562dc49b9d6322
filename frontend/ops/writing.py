"""Writing: a tensor that exists gets other values.

In       a tensor, and the values that it is to have
Out      the same tensor, of another node
Changes  the tensor, and what views of its memory show; the clock of changes
Next     core/view_writes.py (how a write is seen in views), in_place.py (methods that end in _),
         core/threads.py (the lock)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core import known_later, sizes, view_writes, views
from hcq.frontend.core.base import Core, changed, live, watcher
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import constant, expanded
from hcq.frontend.core.threads import lock, new_write, without_done
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.node import Node
from hcq.ir.op import Op


class Writing(Methods):
    """assign, and what every write in place goes through."""

    __slots__ = ()
    _are_functions: bool = False

    def assign(self, value: Any) -> Self:
        """Write `value` into the memory this tensor has; without memory of its own it just becomes the value.

        Lazy: the write happens when this tensor is realized. Tensors made from this one before keep the old values.
        Where this one is a view, the tensor that it views gets the new ones.
        A value of fewer axes, or with axes of size 1, is repeated along them.
        Raises  UsageError for a shape that does not expand to this one, another dtype or device

        >>> x = Tensor([1.0, 2.0])
        >>> before = x + 0.0
        >>> x.assign(x * 10.0).tolist(), before.tolist()
        ([10.0, 20.0], [1.0, 2.0])
        """
        value = self._operand("assign", value)
        shape, given = self.shape, value.shape
        if given != shape and given:
            ends = shape[len(shape) - len(given) :] if len(given) <= len(shape) else ()
            if not ends or any(have != size and have != 1 for have, size in zip(given, ends)):
                raise UsageError(
                    f"[assign] {given} into {shape}: the shapes must be equal. Reshape or expand it."
                )
            value = value.expand(*shape)
        if value.device != self.device:
            raise UsageError(
                f'[assign] a value on {value.device} into {self.device}. Move it: y.to("{self.device}").'
            )
        node = value.node
        if node.dtype is not self.dtype:
            if node.op is not Op.CONST:
                raise UsageError(
                    f"[assign] {node.dtype.name} into {self.dtype.name}: cast it: y.cast(dtypes.{self.dtype.name})."
                )
            node = constant("assign", node.arg, self.dtype)
        with lock:
            without_done(self)
            if node is self.node:
                return self
            if live.ref(self).whole is not None and (views.is_family(self) or views.is_part_by_number(self)):
                view_writes.write("assign", self, self._like(node))
            elif self.node.op is Op.BUFFER or self.node.op is Op.ASSIGN:
                self._become(new_write(Node(Op.ASSIGN, self.dtype, (self.node, node))))
            else:
                self._become(expanded(node, self.shape))
        return self

    def _become(self, node: Node) -> None:
        """Have another node from now on."""
        if known_later.in_use:
            sizes.sizes_of(node)
        with lock:
            self._before_change()
            self.node = node
            changed()

    def _before_change(self) -> None:
        """Called before this tensor gets another value, which makes it this thread's."""
        live.take(self)
        watching = watcher()
        if watching is not None:
            watching.writes(self)

    def _write_view(self, view: Node, value: Core) -> None:
        """Write into a view of this tensor's memory, now. No tensor holds the view: it would keep what was there."""
        self._before_change()
        before = self.node
        if any(node is before for node in value.node.toposort()):
            value = self._like(value.node).clone().realize()  # what is read must not be overwritten meanwhile
        self.node = new_write(Node(Op.ASSIGN, self.dtype, (view, value.node)))
        if known_later.in_use:
            sizes.sizes_of(self.node)
        try:
            self.realize()
        except BaseException:
            self.node = before
            raise
        finally:
            changed()
