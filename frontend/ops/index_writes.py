"""Index writes: x[...] = y, into the memory that x has, or, where a gradient flows, as a new value of x.

In       the entries that indexing.py reads by, and a value that broadcasts to the elements that they name
Out      `IndexWrites`
Changes  x, at once where it has memory; views of x see it
Next     indexing.py (what the entries mean), ../core/view_writes.py (how a write is seen), ../tensor.py (assign)
"""

from __future__ import annotations

from math import prod
from threading import get_ident
from typing import Any

from hcq.frontend.core import known_later, view_writes, views
from hcq.frontend.core.base import Core, thread_modes, watcher
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import expanded, filled, flipped, iota, padded, reshaped, spread
from hcq.frontend.core.sizes import FREE, counts_of, sizes_of, unnamed_beyond
from hcq.frontend.core.structure import structure_of
from hcq.frontend.core.threads import lock, new_write, without_done
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.ops.index_keys import slice_part, whole_index
from hcq.frontend.symbolic.variable import bound_of
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Shape
from hcq.ir.op import Op


class IndexWrites(Methods):
    """x[...] = y."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        with lock:
            self._set(key, value)

    def _set(self, key: Any, value: Any) -> None:
        without_done(self)
        value = self._operand("setitem", value)
        if value.node.dtype is not self.node.dtype:
            value = value.cast(self.node.dtype)
        if known_later.in_use and views.is_part_by_number(value) and self[key].node is value.node:
            return  # x[:n] += y has written it
        watching = watcher() if thread_modes else None
        if views.is_family(self) or (watching is not None and watching.is_shared(self)):
            self._write_in_family(key, value)
            return
        flows = self._is_on_a_gradients_way(value)
        is_mask = isinstance(key, Core) and key.node.dtype.is_bool and key.node.shape == self.node.shape
        if is_mask and value.numel() == 1:
            self._write(self.masked_fill(self._like(key.node), value._reshape(())), flows)
            return
        view, picks = self._basic(key, is_written=True)
        if picks:
            self._write_picked(key, view.node, picks, value, flows)
            return
        place = view.node
        del view  # a tensor that reads what is overwritten would be given a copy of it
        value = _fitted(value, place.shape)
        if self.node.op is Op.BUFFER and not flows:
            self._write_view(place, value)
        else:
            inside = self._spread(key, self._like(filled(True, place.shape, dtypes.bool)))
            self._write(inside.where(self._spread(key, value), self), flows)

    def _write_in_family(self, key: Any, value: Self) -> None:
        """Write where other tensors show the same memory: they see it."""
        view, picks = self._basic(key)
        if picks and known_later.in_use and all(known_later.is_number(index.node) for _, index in picks):
            view, picks = self._view(view._pick(picks).node), []
        if not picks:
            view_writes.write("setitem", view, _fitted(value, view.node.shape))
            return
        is_mask = isinstance(key, Core) and key.node.dtype.is_bool and key.node.shape == self.node.shape
        if is_mask and value.numel() == 1:
            new = self.masked_fill(self._like(key.node), value._reshape(()))
        else:
            new = self._scattered(key, value)._reshape(self.node.shape)
        view_writes.write("setitem", self, new)

    def _is_on_a_gradients_way(self, value: Self) -> bool:
        """Whether a gradient flows from this tensor, once `value` is written into it, to leaves."""
        mode = thread_modes.get(get_ident()) if thread_modes else None
        if mode is not None and mode.no_grad_depth:
            return False
        is_tracked = structure_of([value.node]).tracked[-1]
        if not self._requires_grad:
            return is_tracked or structure_of([self.node]).tracked[-1]
        if is_tracked:
            raise UsageError(
                f"[setitem] into a leaf of shape {self.node.shape} that requires a gradient, from a value that a "
                "gradient flows through: write into a copy, x.clone(), or under no_grad()."
            )
        return False

    def _write(self, new: Self, flows: bool) -> None:
        """Become these values: in the memory there is, or, where a gradient flows through them, as what they are."""
        if flows or self.node.op not in (Op.BUFFER, Op.ASSIGN):
            self._become(expanded(new.node, self.node.shape))
        else:
            self.assign(new)

    def _write_picked(
        self, key: Any, place: Node, picks: list[tuple[int, Self]], value: Self, flows: bool
    ) -> None:
        """Write elements at computed indices: where there is memory, these alone. The last of equal indices wins."""
        is_in_memory = self.node.op is Op.BUFFER or self.node.op is Op.ASSIGN
        if len(picks) > 1 or flows or not is_in_memory:
            new = self._scattered(key, value)
            if flows or not is_in_memory or new is self:
                self._write(new._reshape(self.node.shape), flows)
            else:
                self._become(new_write(Node(Op.ASSIGN, self.node.dtype, (new.node.src[0], new.node))))
            return
        ((axis, index),) = picks
        shape, count = place.shape, prod(index.node.shape)
        value = _fitted(value, shape[:axis] + index.node.shape + shape[axis + 1 :])
        if index.node.shape == (count,):
            for _, size in counts_of(index.node):
                have = sizes_of(value.node)[axis]
                if have is not FREE and have is not size:
                    raise UsageError(
                        f"[setitem] {bound_of(size)} elements of axis {axis} are written, and the value has "
                        f"{value.shape[axis]}. Cut it: y[:{bound_of(size)}]."
                    )
        full = (*shape[:axis], count, *shape[axis + 1 :])
        ones = tuple([count if d == axis else 1 for d in range(len(shape))])
        where = expanded(reshaped(unnamed_beyond(index.node), ones), full)
        source = (place, where, reshaped(value.node, full))
        if prod(full):
            new_node = Node(Op.SCATTER, self.node.dtype, source, axis)
            self._become(new_write(Node(Op.ASSIGN, self.node.dtype, (place, new_node))))

    def _scattered(self, key: Any, value: Self) -> Self:
        """This tensor, flat, with elements at computed indices replaced; the last of equal indices wins.

        The same index taken of 0, 1, 2, ... tells which place each new element goes to.
        """
        shape, size = self.node.shape, self.numel()
        places = self._like(iota(size, 0, (size,)))._reshape(shape)
        reached = (places + 1)[key]  # 0 is what an index out of range reads
        value = _fitted(value, reached.node.shape).flatten()
        target = reached.flatten() - 1
        if target.numel() == 0 or size == 0:
            return self
        source = (self.flatten().node, unnamed_beyond(target.node), value.node)
        return self._like(Node(Op.SCATTER, self.node.dtype, source, 0))

    def _spread(self, key: Any, value: Self) -> Self:
        """A view's values back in the whole shape, zero around them: the inverse of `_basic` for basic indices."""
        shape, axis = self.node.shape, 0
        parts: list[tuple[tuple[int, int, int], bool, int]] = []
        for entry in self._complete(key):
            if entry is None:
                continue
            if isinstance(entry, slice):
                parts.append(slice_part(entry, shape[axis], axis))
            else:
                start = whole_index(entry, axis, shape)
                parts.append(((start, start + 1, 1), False, 1))
            axis += 1
        node = reshaped(value.node, tuple([count for _, _, count in parts]))
        node = flipped(node, tuple([axis for axis, part in enumerate(parts) if part[1]]))
        for axis, ((start, _, step), _, _) in enumerate(parts):
            node = spread(node, axis, step)
            rest = shape[axis] - start - node.shape[axis]
            node = padded(node, tuple([(start, rest) if d == axis else (0, 0) for d in range(len(shape))]))
        return self._like(node)


def _fitted(value: Any, shape: Shape) -> Any:
    """A value in the shape it is written to: leading axes of size 1 fall away, others expand."""
    have = value.node.shape
    while len(have) > len(shape) and have[0] == 1:
        have = have[1:]
    value = value._reshape(have)
    if len(have) > len(shape) or any(h not in (1, s) for h, s in zip(have[::-1], shape[::-1])):
        raise UsageError(
            f"[setitem] a value of shape {value.node.shape} does not fit in {shape}. Reshape it."
        )
    return value.expand(shape)
