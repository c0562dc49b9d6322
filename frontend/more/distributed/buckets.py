"""Buckets: parameters, and their gradients, side by side in a few long vectors that travel as one message each.

In       a list of parameters
Out      `Layout`: which parameter stands where in which bucket; tensors joined into buckets and taken apart again
Next     data_parallel.py (who reduces buckets), checkpoint.py (who takes the state of an optimizer apart)

The last parameters stand in the first bucket: backward makes their gradients first. A bucket is padded so that it
falls into equal parts for all ranks. The last one ends with a place for the loss, which so needs no message of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor

UNIT = 16  # elements: a part of a bucket is a multiple of it


class Place(NamedTuple):
    """Where a parameter stands."""

    parameter: int  # its number in the list
    bucket: int
    start: int
    stop: int


class Layout:
    """Where each parameter stands, for a number of ranks."""

    def __init__(self, params: Sequence[Tensor], bucket_bytes: int, parts: int):
        dtypes = {parameter.dtype for parameter in params}
        found = {parameter.device for parameter in params}
        if len(dtypes) > 1 or len(found) > 1:
            kinds = sorted(dtype.name for dtype in dtypes)
            raise UsageError(
                f"[DataParallel] parameters of dtypes {kinds} on {sorted(found)}: give parameters of one dtype on one "
                "device of each rank."
            )
        self.shapes = [parameter.shape for parameter in params]
        (self.dtype,), (self.device,) = dtypes, found
        limit = max(1, bucket_bytes // self.dtype.itemsize)
        self.places: list[Place] = []
        self.lengths: list[int] = []
        at = bucket = 0
        for number in reversed(range(len(params))):
            count = prod(self.shapes[number])
            if at and at + count > limit:
                self.lengths.append(at)
                bucket, at = bucket + 1, 0
            self.places.append(Place(number, bucket, at, at + count))
            at += count
        self.lengths.append(at + 1)  # and the loss
        unit = UNIT * parts
        self.padded = [-(-length // unit) * unit for length in self.lengths]

    def joined(self, tensors: Sequence[Tensor], loss: Tensor | None = None) -> list[Tensor]:
        """The buckets of tensors that stand for the parameters, in their order; lazy."""
        found: list[list[Tensor]] = [[] for _ in self.lengths]
        for place in self.places:
            found[place.bucket].append(tensors[place.parameter].reshape(-1))
        last = Tensor.zeros(1, dtype=self.dtype, device=self.device)
        found[-1].append(last if loss is None else loss.detach().reshape(1).cast(self.dtype))
        for bucket, (length, padded) in enumerate(zip(self.lengths, self.padded)):
            if padded > length:
                found[bucket].append(Tensor.zeros(padded - length, dtype=self.dtype, device=self.device))
        return [Tensor.cat(parts) if len(parts) > 1 else parts[0] for parts in found]

    def apart(self, buckets: Sequence[Tensor]) -> list[Tensor]:
        """The tensors that stand for the parameters, in their order: views of the buckets."""
        found: dict[int, Tensor] = {}
        for number, bucket, start, stop in self.places:
            found[number] = buckets[bucket][start:stop].reshape(self.shapes[number])
        return [found[number] for number in range(len(self.shapes))]

    def loss(self, buckets: Sequence[Tensor]) -> Tensor:
        """What stands behind the last gradient."""
        return buckets[-1][self.lengths[-1] - 1]
