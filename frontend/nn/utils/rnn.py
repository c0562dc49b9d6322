"""Sequences of several lengths: padded to one length, or packed without padding.

In       sequences, or a padded tensor and its lengths
Out      `PackedSequence`; pack_padded_sequence, pad_packed_sequence, pack_sequence, pad_sequence, unpad_sequence
Next     ../layers/recurrent.py (which takes packed sequences)

Packed rows are the first step of all sequences, the longest first, then the second step of those that have one, and so
on. Lengths are numbers of the host: how many rows there are is part of every shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor


class PackedSequence(NamedTuple):
    """Rows (sum of lengths, ...), how many belong to each step, and the order that sorted the sequences.

    >>> packed = nn.utils.rnn.pack_sequence([hcq.tensor([1, 2, 3]), hcq.tensor([4])])
    >>> packed.data.tolist(), list(packed.batch_sizes)
    ([1, 4, 2, 3], [2, 1, 1])
    """

    data: Tensor
    batch_sizes: tuple[int, ...]
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The rows elsewhere, as Tensor.to has it."""
        moved = self.data.to(*args, **kwargs)
        orders = [None if order is None else order.to(moved.device) for order in self[2:]]
        return PackedSequence(moved, self.batch_sizes, *orders)


def _lengths(call: str, lengths: Any) -> list[int]:
    found = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    if not isinstance(found, (list, tuple)) or not found or any(not is_whole(n) or n < 1 for n in found):
        raise UsageError(f"[{call}] lengths {shown(lengths)}: give ints, 1 or more.")
    return [int(n) for n in found]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Sequences padded to one length, (length, batch, ...), without their padding.

    lengths          of each sequence: a list, or a tensor, whose numbers are read now
    enforce_sorted   refuse lengths that do not fall; False sorts them, and the results of layers are sorted back

    >>> packed = nn.utils.rnn.pack_padded_sequence(Tensor([[1.0, 4.0], [2.0, 5.0], [3.0, 0.0]]), [3, 2])
    >>> packed.data.tolist(), packed.batch_sizes
    ([1.0, 4.0, 2.0, 5.0, 3.0], (2, 2, 1))
    """
    counts = _lengths("pack_padded_sequence", lengths)
    x = input.transpose(0, 1) if batch_first else input
    if len(counts) != x.shape[1] or max(counts) > x.shape[0]:
        raise UsageError(
            f"[pack_padded_sequence] {input.shape} with lengths {shown(counts)}: give one for each of {x.shape[1]} "
            f"sequences, none above {x.shape[0]}."
        )
    order = sorted(range(len(counts)), key=lambda place: -counts[place])
    given, back = None, None
    if enforce_sorted and order != list(range(len(counts))):
        raise UsageError(
            f"[pack_padded_sequence] lengths {shown(counts)} do not fall. Sort them, or pass enforce_sorted=False."
        )
    if not enforce_sorted:
        given = Tensor._made_of(order, device=x.device)
        back = Tensor._made_of([order.index(place) for place in range(len(order))], device=x.device)
        x = x[:, given]
    sizes = tuple(sum(n > step for n in counts) for step in range(max(counts)))
    rows = [x[step, :size] for step, size in enumerate(sizes)]
    return PackedSequence(Tensor.cat(rows), sizes, given, back)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Packed sequences -> (length, batch, ...), padded, and their lengths.

    total_length   pad to this length

    >>> packed = nn.utils.rnn.pack_sequence([hcq.tensor([1, 2, 3]), hcq.tensor([4])])
    >>> padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2, 3], [4, 0, 0]], [3, 1])
    """
    sizes = sequence.batch_sizes
    length = len(sizes) if total_length is None else total_length
    if length < len(sizes):
        raise UsageError(f"[pad_packed_sequence] total_length {length}: a sequence has {len(sizes)} steps.")
    rest = (0, 0) * (sequence.data.ndim - 1)
    steps, start = [], 0
    for size in sizes:
        step = sequence.data[start : start + size].pad((*rest, 0, sizes[0] - size), value=padding_value)
        steps.append(step)
        start += size
    x = Tensor.stack(steps)
    if length > len(sizes):
        x = x.pad((*rest, 0, 0, 0, length - len(sizes)), value=padding_value)
    lengths = Tensor._made_of([sum(size > place for size in sizes) for place in range(sizes[0])])
    if sequence.unsorted_indices is not None:
        x = x[:, sequence.unsorted_indices]
        lengths = lengths.to(x.device)[sequence.unsorted_indices]
    return x.transpose(0, 1) if batch_first else x, lengths


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (length, ...) of several lengths -> (longest, number, ...).

    >>> rows = [hcq.tensor([1, 2, 3]), hcq.tensor([4])]
    >>> nn.utils.rnn.pad_sequence(rows, batch_first=True).tolist(), nn.utils.rnn.pad_sequence(rows).shape
    ([[1, 2, 3], [4, 0, 0]], (3, 2))
    """
    if isinstance(sequences, Tensor) or not sequences or padding_side not in ("left", "right"):
        raise UsageError("[pad_sequence] give a list of tensors, and padding_side 'left' or 'right'.")
    longest = max(each.shape[0] for each in sequences)
    padded = []
    for each in sequences:
        room = longest - each.shape[0]
        ends = (0, room) if padding_side == "right" else (room, 0)
        padded.append(each.pad((*(0, 0) * (each.ndim - 1), *ends), value=padding_value))
    return Tensor.stack(padded, dim=0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (length, ...) of several lengths, packed.

    >>> packed = nn.utils.rnn.pack_sequence([hcq.tensor([4]), hcq.tensor([1, 2])], enforce_sorted=False)
    >>> packed.data.tolist(), packed.sorted_indices.tolist()
    ([1, 4, 2], [1, 0])
    """
    return pack_padded_sequence(
        pad_sequence(sequences), [each.shape[0] for each in sequences], enforce_sorted=enforce_sorted
    )


def unpad_sequence(padded: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """Padded sequences -> each without its padding.

    >>> padded = hcq.tensor([[1, 2, 3], [4, 0, 0]])
    >>> [row.tolist() for row in nn.utils.rnn.unpad_sequence(padded, hcq.tensor([3, 1]), batch_first=True)]
    [[1, 2, 3], [4]]
    """
    x = padded if batch_first else padded.transpose(0, 1)
    return [x[place, :n] for place, n in enumerate(_lengths("unpad_sequence", lengths))]


def unpack_sequence(packed: PackedSequence) -> list[Tensor]:
    """Packed sequences -> each by itself.

    >>> packed = nn.utils.rnn.pack_sequence([hcq.tensor([1, 2, 3]), hcq.tensor([4])])
    >>> [row.tolist() for row in nn.utils.rnn.unpack_sequence(packed)]
    [[1, 2, 3], [4]]
    """
    return unpad_sequence(*pad_packed_sequence(packed))
