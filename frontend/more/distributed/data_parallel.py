"""Data parallel: each rank computes the gradients of its part of a batch; all ranks add them up and make the same step.

In       a model, a loss, an optimizer; each rank's part of every batch
Out      `DataParallel.step`, which trains as one process with the whole batch would
Changes  the model's parameters and the optimizer's state, which stay equal on all ranks
Next     buckets.py (what travels), sums.py (in which order it is added), checkpoint.py, docs/distributed.md

    record     loss and gradients, one recording, submitted in parts: each ends where a bucket of gradients is complete
    reduce     as soon as the device has reached the end of a part, its bucket is added up over the ranks, while the
               device goes on with the parts after it
    update     the optimizer's step, a second recording; or, sharded, each rank's part of it, and the parts are gathered

A rank's batch may be cut into `shards`, whose gradients are added in the same tree as those of ranks. Then it makes no
difference, to the last bit, how many ranks have the shards of one global batch: 4 ranks with one each, 2 with two, 1
with four.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hcq import checks
from hcq.errors import UsageError
from hcq.events import named_spans
from hcq.frontend.core import device as devices
from hcq.frontend.grad.gradient import grad
from hcq.frontend.jit.function import Jit
from hcq.frontend.more.distributed.buckets import Layout
from hcq.frontend.more.distributed.collectives import (
    broadcast_into,
    gather_buffer,
    reduce_buffer,
    scatter_buffer,
)
from hcq.frontend.more.distributed.group import Group, Operation
from hcq.frontend.more.distributed.job import world
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.optim import Optimizer
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor

BUCKET_BYTES = 4 << 20

Loss = Callable[..., Tensor]
MakeOptimizer = Callable[[list[Tensor]], Optimizer]


class DataParallel:
    """Training of one model by all ranks of a group.

    model         the same on every rank; the first rank's parameters are sent to the others
    loss          loss(*batch) -> the mean loss of these samples, a scalar that depends on the model
    optimizer     makes the optimizer of the tensors it is given: lambda params: nn.optim.AdamW(params, lr=1e-3)
    bucket_bytes  how much gradient travels as one message
    shards        into how many equal parts each rank's batch is cut: a power of two for results that do not depend on
                  the number of ranks
    is_sharded    each rank keeps and updates its part of the optimizer's state: 1 / ranks of the memory, as many
                  bytes sent
    way           of the sums over ranks: "direct" or "halving"; "" chooses

    exchange_ns   how long, all in all, this rank has been at sums over ranks, waiting for others included

    Gradients are of float32 parameters of one device; a parameter that the loss does not depend on is refused.
    Statistics that a model keeps besides its parameters (batch norm) are each rank's own.

    >>> world = hcq.distributed.init()
    >>> net = nn.Linear(2, 1)
    >>> loss = lambda x, y: (net(x) - y).square().mean()
    >>> training = hcq.distributed.DataParallel(net, loss, lambda params: hcq.optim.SGD(params, lr=0.1))
    >>> x, y = Tensor([[1.0, 2.0]]), Tensor([[3.0]])
    >>> losses = [training.step(x, y).item() for _ in range(5)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        model: Module,
        loss: Loss,
        optimizer: MakeOptimizer,
        group: Group | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        shards: int = 1,
        is_sharded: bool = False,
        timeout_ms: float | None = None,
        way: str = "",
    ):
        self.model, self.loss, self.group = model, loss, group or world()
        self.shards = checks.whole("DataParallel", "shards", shards, 1, 1 << 20)
        self.bucket_bytes = checks.whole("DataParallel", "bucket_bytes", bucket_bytes, 1)
        self.timeout_ms, self.way, self.is_sharded = timeout_ms, way, bool(is_sharded)
        self.exchange_ns = 0
        self.params = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not self.params:
            raise UsageError("[DataParallel] the model has no parameter that requires a gradient.")
        broadcast_into(list(model.state_dict().values()), 0, self.group, timeout_ms)
        self.layout = Layout(self.params, self.bucket_bytes, self.group.size)
        self.scale = 1.0 / (self.group.size * self.shards)
        self.slices: list[Tensor] = self._own_slices() if is_sharded else []
        self.optimizer = optimizer(self.slices or self.params)
        self._gradients = Jit(self._compute_gradients, by_result=True)
        self._add = Jit(_add, by_result=True)
        self._update: Jit[..., Any] = Jit(self._update_slices if is_sharded else self._update_all)
        self._spread = Jit(self._write_parameters)

    def step(self, *batch: Tensor) -> Tensor:
        """One step of training on this rank's part of the batch: tensors with a sample in each row.

        Returns  the mean loss over the whole batch, the same on every rank: a tensor of shape ()
        Raises   WaitTimeout and RankLost naming the rank that is missing; UsageError for rows that do not divide into
                 the shards

        >>> world = hcq.distributed.init()
        >>> net = nn.Linear(1, 1)
        >>> loss = lambda x, y: (net(x) - y).square().mean()
        >>> training = hcq.distributed.DataParallel(net, loss, lambda params: hcq.optim.SGD(params, lr=0.1))
        >>> training.step(Tensor([[1.0]]), Tensor([[3.0]])).shape
        ()
        """
        buckets = self._summed(self._cut(batch))
        if not self.is_sharded:
            for bucket in buckets:
                self._reduce(bucket)
            loss: Tensor = self._update(*buckets)
            return loss
        parts = [self._scatter(bucket) for bucket in buckets]
        self._update(*parts)
        loss = self._gather_one(parts[-1])
        self._spread(*[self._gather(part) for part in self.slices])
        return loss

    def _cut(self, batch: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """The batches of the shards."""
        if not batch:
            raise UsageError(
                "[DataParallel.step] no tensors: give what the loss takes, a sample in each row."
            )
        if self.shards == 1:
            return [tuple(batch)]
        found = []
        for tensor in batch:
            rows = tensor.shape[0] if tensor.shape else 0
            if not rows or rows % self.shards:
                raise UsageError(
                    f"[DataParallel.step] {rows} rows do not divide into {self.shards} shards. Give a multiple of that."
                )
            each = rows // self.shards
            found.append([tensor[at : at + each].contiguous() for at in range(0, rows, each)])
        return list(zip(*found))

    def _summed(self, batches: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
        """The buckets of these batches, added up in the tree; submitted, not waited for."""
        if len(batches) == 1:
            return list(self._gradients(*batches[0]))
        low = 1 << (len(batches) - 1).bit_length() - 1
        left, right = self._summed(batches[:low]), self._summed(batches[low:])
        return list(self._add(left, right))

    # -- what is recorded --

    def _compute_gradients(self, *batch: Tensor) -> tuple[Tensor, ...]:
        loss = self.loss(*batch)
        if not isinstance(loss, Tensor) or loss.shape:
            raise UsageError(
                "[DataParallel.step] the loss must be a tensor of shape (): the mean over the samples."
            )
        found = self.layout.joined(grad(loss, self.params), loss)  # type: ignore[arg-type]
        realize(found)
        return tuple(found)

    def _update_all(self, *buckets: Tensor) -> Tensor:
        for parameter, gradient in zip(self.params, self.layout.apart(buckets)):
            parameter.grad = gradient * self.scale
        self.optimizer.step()
        self.optimizer.zero_grad()
        return (self.layout.loss(buckets) * self.scale).realize()

    def _update_slices(self, *parts: Tensor) -> None:
        for own, gradient in zip(self.slices, parts):
            own.grad = gradient * self.scale
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _write_parameters(self, *buckets: Tensor) -> None:
        for parameter, value in zip(self.params, self.layout.apart(buckets)):
            parameter.assign(value)
        realize(self.params)

    # -- what travels --

    def _reduce(self, bucket: Tensor) -> None:
        if self.group.size > 1:
            buffer = self._ready(bucket)
            with self._exchange("all_reduce", bucket.nbytes, bucket) as running:
                reduce_buffer(running, buffer, buffer, bucket.dtype.name, way=self.way)

    def _scatter(self, bucket: Tensor) -> Tensor:
        """This rank's part of the sum of a bucket."""
        if self.group.size == 1:
            return bucket
        source = self._ready(bucket)
        part = _empty(bucket, bucket.shape[0] // self.group.size)
        with self._exchange("reduce_scatter", bucket.nbytes, bucket) as running:
            scatter_buffer(running, source, part.node.arg.buffer, bucket.dtype.name)
        return part

    def _gather(self, part: Tensor) -> Tensor:
        """The whole bucket of which each rank has a part."""
        if self.group.size == 1:
            return part.detach().clone().realize()
        source = self._ready(part)
        whole = _empty(part, part.shape[0] * self.group.size)
        with self._exchange("all_gather", part.nbytes, whole) as running:
            gather_buffer(running, source, whole.node.arg.buffer)
        return whole

    def _ready(self, tensor: Tensor) -> Any:
        """Its memory, once the device has reached the end of the part that fills it."""
        buffer = tensor.node.arg.buffer
        buffer.wait(self.timeout_ms)
        return buffer

    @contextmanager
    def _exchange(self, name: str, size_bytes: int, bucket: Tensor) -> Iterator[Operation]:
        """An operation of the group, in traces and in `exchange_ns`."""
        began = time.perf_counter_ns()
        with (
            named_spans.during(devices.get(bucket.device), name, bucket.nbytes, self.group.ranks),
            self.group.operation(
                name, size_bytes, f"bucket {bucket.dtype.name} {bucket.shape}", self.timeout_ms
            ) as running,
        ):
            yield running
        self.exchange_ns += time.perf_counter_ns() - began

    def _gather_one(self, last: Tensor) -> Tensor:
        """The loss, which stands in the part that the last bucket's end fell to."""
        whole = self._gather(last)
        return whole[self.layout.lengths[-1] - 1] * self.scale

    # -- a rank's part of the parameters --

    def _own_slices(self) -> list[Tensor]:
        rank, size = self.group.rank, self.group.size
        found = []
        for bucket in self.layout.joined([parameter.detach() for parameter in self.params]):
            length = bucket.shape[0] // size
            own = bucket[rank * length : (rank + 1) * length].clone().realize().detach()
            own.requires_grad = True
            found.append(own)
        return found

    # -- its state, the same whatever the number of ranks --

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next step depends on, by name: all ranks must call it together, and all get all of it.

        >>> world = hcq.distributed.init()
        >>> net = nn.Linear(1, 1)
        >>> loss = lambda x: net(x).sum()
        >>> training = hcq.distributed.DataParallel(net, loss, lambda params: hcq.optim.SGD(params, lr=0.1))
        >>> [name for name in training.state_dict() if name.startswith("model.")]
        ['model.weight', 'model.bias']
        """
        model = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        return {**model, **{f"optimizer.{name}": tensor for name, tensor in self._optimizer_state().items()}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state_dict` gave, here or on another number of ranks. Raises UsageError as a model does.

        >>> world = hcq.distributed.init()
        >>> net = nn.Linear(1, 1)
        >>> loss = lambda x: net(x).sum()
        >>> training = hcq.distributed.DataParallel(net, loss, lambda params: hcq.optim.SGD(params, lr=0.1))
        >>> saved = {name: tensor.clone().realize() for name, tensor in training.state_dict().items()}
        >>> _ = nn.init.zeros_(net.weight)
        >>> training.load_state_dict(saved)
        >>> net.weight.tolist() == saved["model.weight"].tolist()
        True
        """
        self.model.load_state_dict(_under("model.", state))
        found = _under("optimizer.", state)
        if not self.is_sharded:
            self.optimizer.load_state_dict(found)
            return
        for own, now in zip(self.slices, self._own_slices()):
            own.assign(now.detach())
        realize(self.slices)
        self.optimizer.load_state_dict(self._cut_state(found))

    def _optimizer_state(self) -> dict[str, Tensor]:
        """The state of an optimizer of all parameters, gathered when it is sharded."""
        own = self.optimizer.flat_state()
        if not self.is_sharded:
            return own
        found: dict[str, Tensor] = {}
        buckets: dict[str, dict[int, Tensor]] = {}
        for name, tensor in own.items():
            what, _, number = name.rpartition(".")
            if number.isdigit() and tensor.shape == self.slices[int(number)].shape:
                buckets.setdefault(what, {})[int(number)] = self._gather(
                    tensor.detach().contiguous().realize()
                )
            elif tensor.shape == (len(self.slices),):  # one number for each tensor of the optimizer
                order = [
                    bucket
                    for _, bucket in sorted((place.parameter, place.bucket) for place in self.layout.places)
                ]
                found[name] = Tensor.stack([tensor.detach()[bucket] for bucket in order]).realize()
            else:
                found[name] = tensor
        for what, each in buckets.items():
            whole = self.layout.apart([each[number] for number in range(len(self.slices))])
            found.update({f"{what}.{number}": tensor.contiguous() for number, tensor in enumerate(whole)})
        realize(found.values())
        return found

    def _cut_state(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of the state of an optimizer of all parameters."""
        rank, size = self.group.rank, self.group.size
        found: dict[str, Tensor] = {}
        apart: dict[str, dict[int, Tensor]] = {}
        for name, tensor in state.items():
            what, _, digits = name.rpartition(".")
            if digits.isdigit() and tensor.shape == self.layout.shapes[int(digits)]:
                apart.setdefault(what, {})[int(digits)] = tensor
            elif tensor.shape == (len(self.params),):
                first = {place.bucket: place.parameter for place in self.layout.places}
                found[name] = Tensor.stack([tensor[first[bucket]] for bucket in range(len(self.slices))])
            else:
                found[name] = tensor
        for what, each in apart.items():
            for number, bucket in enumerate(self.layout.joined([each[n] for n in range(len(self.params))])):
                length = bucket.shape[0] // size
                found[f"{what}.{number}"] = bucket[rank * length : (rank + 1) * length].contiguous()
        realize(found.values())
        return found


def _empty(like: Tensor, length: int) -> Tensor:
    return Tensor.empty(length, dtype=like.dtype, device=like.device).realize()


def _add(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    return [(a + b).realize() for a, b in zip(left, right)]


def _under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
