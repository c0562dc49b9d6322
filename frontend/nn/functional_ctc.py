"""Connectionist temporal classification: the probability of a sequence, summed over all ways to stretch it over time.

In       logarithms of probabilities (time, batch, classes), sequences of classes without blanks, the lengths of both
Out      lazy tensors: minus the logarithm of that probability, reduced
Next     functional.py (where it is found), grad/function.py (why the slope is written apart)
Source   Graves et al. 2006: a sequence with blanks between its elements; the probability of its first parts, from the
         first time on (alpha), and of its last ones, from the last time back (beta)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.function import Function
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.base import in_float_together
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node


@checked
@in_float_together
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of each target sequence under `log_probs`, (time, batch, classes) or (time, classes).

    targets          (batch, longest), or all sequences in one row; integers other than `blank`
    input_lengths    how many times of each sample count; target_lengths: how many elements of each target
    reduction        "mean" divides each loss by its target's length first; "sum"; "none"
    zero_infinity    a target that does not fit its time costs 0, and not infinity

    The gradient is that of logits whose log_softmax the `log_probs` are, as in PyTorch.

    >>> sure = Tensor([[0.0, -9.0], [-9.0, 0.0]])
    >>> hcq.nn.functional.ctc_loss(sure, hcq.tensor([1]), hcq.tensor(2), hcq.tensor(1), reduction="sum").item() < 0.001
    True
    """
    call = "ctc_loss"
    if log_probs.ndim == 2:
        one = ctc_loss(
            log_probs.unsqueeze(1), targets.reshape(1, -1) if targets.numel() else targets.reshape(1, 0),
            _row(input_lengths), _row(target_lengths), blank, reduction, zero_infinity,
        )  # fmt: skip
        return one.squeeze(0) if reduction == "none" else one
    if log_probs.ndim != 3 or not log_probs.dtype.is_float or not targets.dtype.is_integer:
        raise UsageError(
            f"[{call}] {log_probs.dtype.name} {log_probs.shape}, {targets.dtype.name} targets: give logarithms (time, "
            "batch, classes), and integers."
        )
    times, batch, classes = log_probs.shape
    spans, sizes = _lengths(call, input_lengths, batch), _lengths(call, target_lengths, batch)
    if not 0 <= blank < classes or not all(0 <= n <= times for n in spans) or min([*sizes, 0]) < 0:
        raise UsageError(
            f"[{call}] blank={blank} of {classes} classes, {times} times: lengths are 0 to {times}, blank is a class."
        )
    loss = _Paths(log_probs, _stretched(call, targets, sizes, blank), spans, sizes).loss()
    if zero_infinity:
        loss = (loss == math.inf).where(0.0, loss)
    if reduction == "mean":
        counts = Tensor([float(max(1, n)) for n in sizes], device=loss.device, dtype=loss.dtype)
        return (loss / counts).mean()
    return loss._reduced(call, reduction)


def _row(lengths: Any) -> Any:
    return lengths.reshape(1) if isinstance(lengths, Tensor) else [int(n) for n in _flat(lengths)]


def _flat(lengths: Any) -> list[Any]:
    return list(lengths) if isinstance(lengths, (tuple, list)) else [lengths]


def _lengths(call: str, given: Any, batch: int) -> list[int]:
    found = given.flatten().tolist() if isinstance(given, Tensor) else _flat(given)
    if len(found) != batch or any(int(n) != n for n in found):
        raise UsageError(f"[{call}] {len(found)} lengths of {batch} samples: give a whole number for each.")
    return [int(n) for n in found]


def _stretched(call: str, targets: Tensor, sizes: list[int], blank: int) -> Tensor:
    """(batch, 2 longest + 1): the targets with a blank before, between and behind their elements."""
    longest = max([*sizes, 0])
    if targets.ndim == 1:
        if targets.shape[0] != sum(sizes):
            raise UsageError(f"[{call}] {targets.shape[0]} elements of targets whose lengths are {sizes}.")
        places, start = [], 0
        for n in sizes:
            places.append([min(start + k, max(0, targets.shape[0] - 1)) for k in range(longest)])
            start += n
        rows = targets[places] if longest else targets.reshape(1, -1)[:, :0].expand(len(sizes), 0)
    else:
        if targets.ndim != 2 or targets.shape[0] != len(sizes) or targets.shape[1] < longest:
            raise UsageError(
                f"[{call}] targets {targets.shape}, lengths {sizes}: give (batch, longest) at least."
            )
        rows = targets[:, :longest]
    rows = rows.cast(dtypes.int64)
    blanks = Tensor.full((len(sizes), longest, 1), blank, device=targets.device)
    pairs = Tensor.cat([blanks, rows.unsqueeze(2)], dim=2).reshape(len(sizes), 2 * longest)
    return Tensor.cat([pairs, Tensor.full((len(sizes), 1), blank, device=targets.device)], dim=1)


class _Paths:
    """All ways to stretch a target over time, as logarithms of probabilities by place of the stretched target."""

    def __init__(self, log_probs: Tensor, labels: Tensor, spans: list[int], sizes: list[int]):
        have = log_probs.dtype
        self.have = have
        self.given = log_probs.cast(dtypes.float32) if have.itemsize < 4 else log_probs
        self.logs = self.given.detach()
        self.labels, self.spans, self.sizes = labels, spans, sizes
        self.times, self.batch, self.classes = log_probs.shape
        self.width = labels.shape[1]
        index = labels.unsqueeze(0).expand(self.times, self.batch, self.width)
        self.at = self.logs.gather(2, index).contiguous()  # (times, batch, width)
        device = log_probs.device
        # a label may follow the one two before it, unless that is the same, as blanks are
        skips = labels[:, 2:] != labels[:, :-2]
        self.may_skip = Tensor.cat(
            [Tensor.zeros(self.batch, min(2, self.width), device=device) > 0.0, skips], dim=1
        )
        line = Tensor.arange(self.width, device=device)
        self.ends = Tensor._made_of([2 * n for n in sizes], device=device).unsqueeze(1)
        self.is_real = line <= self.ends
        self.line = line
        self.last = Tensor._made_of([n - 1 for n in spans], device=device).unsqueeze(1)

    def _steps(self, at: Tensor, may_skip: Tensor) -> Tensor:
        """(times, batch, width): sums over the ways from this place, the one before, and, past a blank, the next one.

        The time is counted in memory, so that one kernel serves all steps.
        """
        low = -math.inf
        at = at.contiguous()
        found = [(self.line < 2).where(at[0], low).contiguous()]
        time = Tensor.zeros(1, 1, 1, dtype=dtypes.int64, device=at.device).contiguous()
        for _ in range(1, self.times):
            before = found[-1]
            time = (time + 1).contiguous()
            now = at.gather(0, time.expand(1, self.batch, self.width)).squeeze(0)
            one = before.pad((1, 0), value=low)[:, :-1]
            two = may_skip.where(before.pad((2, 0), value=low)[:, :-2], low) if self.width > 1 else one
            top = before.maximum(one).maximum(two)
            still = (top == low).where(0.0, top)
            total = ((before - still).exp() + (one - still).exp() + (two - still).exp()).log() + still
            found.append((total + now).contiguous())
        return Tensor.stack(found)

    def loss(self) -> Tensor:
        """(batch,): minus the logarithm of the sum over all ways that end with the last element, or its blank."""
        low = -math.inf
        if not self.times:
            value = Tensor._made_of(
                [0.0 if n == 0 else math.inf for n in self.sizes], device=self.logs.device
            )
            return (value.cast(self.have) + (self.given * 0.0).sum()).cast(self.have)
        alpha = self._steps(self.at, self.may_skip)
        time = Tensor.arange(self.times, device=self.logs.device).reshape(-1, 1, 1)
        ending = (self.line >= self.ends - 1) & self.is_real
        is_end = (time == self.last.unsqueeze(0)) & ending.unsqueeze(0)
        reached = is_end.where(alpha, low).logsumexp((0, 2))
        empty = Tensor._made_of([n == 0 for n in self.spans], device=self.logs.device)
        nothing = Tensor._made_of([0.0 if n == 0 else low for n in self.sizes], device=self.logs.device).cast(
            reached.dtype
        )
        value = -empty.where(nothing, reached)

        def slope(node: Node, g: Node) -> Node:
            weight = self.given._like(g).reshape(1, self.batch, 1)
            return (self._slope(alpha, value) * weight).node

        return self.given._like(Function("ctc_loss", slope).of(value.node, self.given.node)).cast(self.have)

    def _slope(self, alpha: Tensor, value: Tensor) -> Tensor:
        """probability - the share of the ways that pass a class at a time; 0 behind the end, and without a way."""
        low = -math.inf
        # the same sums backwards: the target and the times turned round, so that the ends stand first
        device = self.logs.device
        turned = (self.ends - self.line).maximum(0)  # place k is place 2 n - k
        when = Tensor.arange(self.times, device=device).unsqueeze(1)
        back = (self.last.reshape(1, self.batch) - when).maximum(0)  # time t is time last - t
        at = self.at.gather(0, back.unsqueeze(2).expand(self.times, self.batch, self.width))
        at = at.gather(2, turned.unsqueeze(0).expand(self.times, self.batch, self.width))
        at = self.is_real.unsqueeze(0).where(at, low)
        labels = self.labels.gather(1, turned)
        skips = Tensor.cat(
            [
                Tensor.zeros(self.batch, min(2, self.width), device=device) > 0.0,
                labels[:, 2:] != labels[:, :-2],
            ],
            dim=1,
        )
        beta = self._steps(at, skips)
        beta = beta.gather(0, back.unsqueeze(2).expand(self.times, self.batch, self.width))
        beta = beta.gather(2, turned.unsqueeze(0).expand(self.times, self.batch, self.width))
        shares = alpha + beta - self.at + value.reshape(1, self.batch, 1)
        is_on = self.is_real.unsqueeze(0) & (alpha > low) & (beta > low)
        weights = is_on.where(shares, low).exp()
        line = Tensor.arange(self.classes, device=device)
        hits = (self.labels.unsqueeze(2) == line).cast(self.logs.dtype)  # (batch, width, classes)
        passed = weights.transpose(0, 1).matmul(hits).transpose(0, 1)
        inside = (when <= self.last.reshape(1, self.batch)).unsqueeze(2)
        found = (value < math.inf).reshape(1, self.batch, 1)
        return (inside & found).where(self.logs.exp() - passed, 0.0)
