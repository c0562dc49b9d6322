"""Pipeline parallel: each rank has some layers of a model; small parts of a batch go from rank to rank.

In       this rank's stage of a model, a loss, an optimizer; the batch on the first rank, its targets on the last one
Out      `Pipeline.step`, which trains as one process with the whole model would
Changes  the stage's parameters and the optimizer's state
Next     transformer.py (a model in stages), collectives.py (how activations are sent)
Source   Huang et al. 2019 (GPipe); Narayanan et al. 2019 (one forward, one backward)

    gpipe   every rank does all micro-batches forward, then all backward: it keeps the inputs of all of them
    1f1b    after as many forward as there are stages behind it, a rank does one backward, one forward in turn: it
            keeps the inputs of that many

Both wait the same time for the first and the last micro-batch, (ranks - 1) / (micro_batches + ranks - 1) of a step,
and add up gradients in the same order, that of the micro-batches. A stage keeps what came in, and computes what is
inside again for the gradients. Forward, backward and update are recorded by jit; sending and receiving is between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hcq import checks
from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.grad.gradient import grad, no_grad
from hcq.frontend.jit.function import Jit
from hcq.frontend.more.distributed.collectives import Sending, broadcast, receive, start_send
from hcq.frontend.more.distributed.group import Group
from hcq.frontend.more.distributed.job import world
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.optim import Optimizer
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

SCHEDULES = ("1f1b", "gpipe")
MOST_AXES = 8


def order_of(schedule: str, rank: int, size: int, micro_batches: int) -> Iterator[tuple[str, int]]:
    """What a stage does, one after the other: ("forward", micro-batch) and ("backward", micro-batch)."""
    ahead = micro_batches if schedule == "gpipe" else min(micro_batches, size - rank - 1)
    for number in range(ahead):
        yield "forward", number
    for number in range(micro_batches):
        if number + ahead < micro_batches:
            yield "forward", number + ahead
        yield "backward", number


class Pipeline:
    """Training of one model of which each rank of a group has a stage, in the order of ranks.

    stage          this rank's layers: called on a batch on the first rank, elsewhere on what the stage before made
    loss           loss(output, targets) -> the mean loss, a scalar; called on the last rank
    optimizer      makes the optimizer of this stage's parameters
    micro_batches  into how many equal parts a batch is cut
    schedule       "1f1b" or "gpipe"

    >>> world = hcq.distributed.init()
    >>> stage, loss = nn.Linear(2, 2), lambda x, y: (x - y).square().mean()
    >>> training = hcq.distributed.Pipeline(stage, loss, lambda params: hcq.optim.SGD(params, lr=0.1))
    >>> x = Tensor.eye(4)[:, :2].contiguous()
    >>> losses = [training.step(x, x).item() for _ in range(5)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        stage: Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        optimizer: Callable[[list[Tensor]], Optimizer],
        group: Group | None = None,
        micro_batches: int = 4,
        schedule: str = "1f1b",
        timeout_ms: float | None = None,
    ):
        if schedule not in SCHEDULES:
            raise UsageError(f"[Pipeline] schedule={shown(schedule)}; takes one of {', '.join(SCHEDULES)}.")
        self.micro_batches = checks.whole("Pipeline", "micro_batches", micro_batches, 1, 1 << 16)
        self.stage, self.loss, self.group = stage, loss, group or world()
        self.schedule, self.timeout_ms = schedule, timeout_ms
        self.is_first, self.is_last = self.group.rank == 0, self.group.rank == self.group.size - 1
        self.params = [parameter for parameter in stage.parameters() if parameter.requires_grad]
        self.optimizer = optimizer(self.params)
        self.sums = [parameter.detach().zeros_like().contiguous().realize() for parameter in self.params]
        self._forward, self._backward = Jit(self._run_forward), Jit(self._run_backward)
        self._finish, self._update = Jit(self._run_last), Jit(self._run_update)
        self._like: Tensor | None = None  # what arrives here

    def step(self, batch: Tensor | None = None, targets: Tensor | None = None) -> Tensor:
        """One step of training.

        batch    on the first rank: what the first stage takes, a sample in each row
        targets  on the last rank: what the loss takes
        Returns  the mean loss, on every rank: a tensor of shape ()
        Raises   WaitTimeout and RankLost naming the rank that is missing; UsageError for rows that do not divide

        >>> world = hcq.distributed.init()
        >>> stage, loss = nn.Linear(2, 2), lambda x, y: (x - y).square().mean()
        >>> training = hcq.distributed.Pipeline(stage, loss, lambda params: hcq.optim.SGD(params, lr=0.1))
        >>> training.step(Tensor.ones(8, 2), Tensor.ones(8, 2)).shape
        ()
        """
        inputs = self._cut("batch", batch) if self.is_first else []
        wanted = self._cut("targets", targets) if self.is_last else []
        if self._like is None and self.group.size > 1:
            self._learn_shapes(inputs)
        kept: dict[int, Tensor] = {}
        losses: list[Tensor] = []
        sendings: list[Sending] = []
        rank, size = self.group.rank, self.group.size
        for what, number in order_of(self.schedule, rank, size, self.micro_batches):
            if what == "forward":
                kept[number] = x = inputs[number] if self.is_first else self._receive(self._like, rank - 1)
                if not self.is_last:
                    sendings.append(self._send(self._forward(x), rank + 1))
                continue
            x = kept.pop(number)
            if self.is_last:
                loss, *back = self._finish(x, wanted[number])
                losses.append(loss)
            else:
                back = self._backward(x, self._receive(self._out, rank + 1))
            if not self.is_first:
                sendings.append(self._send(back[0], rank - 1))
        total = self._update()
        if self.is_last:
            total = sum(losses[1:], losses[0]) * (1.0 / self.micro_batches)
        for sending in sendings:
            sending.wait()
        return broadcast(total.detach(), size - 1, self.group, self.timeout_ms)

    # -- what is recorded --

    def _run_forward(self, x: Tensor) -> Tensor:
        with no_grad():
            y: Tensor = self.stage(x).contiguous().realize()
        return y

    def _run_backward(self, x: Tensor, gradient: Tensor) -> list[Tensor]:
        return self._add_up(self.stage(x), x, gradient)

    def _run_last(self, x: Tensor, targets: Tensor) -> list[Tensor]:
        loss = self.loss(self.stage(x), targets)
        back = self._add_up(loss, x, None)
        return [loss.detach().realize(), *back]

    def _add_up(self, y: Tensor, x: Tensor, gradient: Tensor | None) -> list[Tensor]:
        """Add the parameters' gradients to their sums; the gradient of x, unless it is the batch."""
        asked = [*self.params, *([] if self.is_first else [x])]
        found = grad(y, asked, gradient)
        for total, part in zip(self.sums, found):
            total.assign(total + part)
        back = [each.contiguous() for each in found[len(self.params) :] if each is not None]
        realize([*self.sums, *back, y])
        return back

    def _run_update(self) -> Tensor:
        for parameter, total in zip(self.params, self.sums):
            parameter.grad = total * (1.0 / self.micro_batches)
        self.optimizer.step()
        self.optimizer.zero_grad()
        for total in self.sums:
            total.assign(total.zeros_like())
        realize(self.sums)
        return Tensor.zeros((), dtype=dtypes.float32, device=self.params[0].device).contiguous().realize()

    # -- what travels --

    def _cut(self, name: str, whole: Tensor | None) -> list[Tensor]:
        rows = whole.shape[0] if isinstance(whole, Tensor) and whole.shape else 0
        if not isinstance(whole, Tensor) or not rows or rows % self.micro_batches:
            raise UsageError(
                f"[Pipeline.step] rank {self.group.rank} needs {name} whose rows divide into {self.micro_batches} "
                f"micro-batches, and has {getattr(whole, 'shape', None)}."
            )
        each = rows // self.micro_batches
        return [whole[at : at + each].contiguous().realize() for at in range(0, rows, each)]

    def _learn_shapes(self, inputs: list[Tensor]) -> None:
        """From stage to stage, in the first step: the shape of what will be sent."""
        rank, device = self.group.rank, self.params[0].device
        axes = Tensor.zeros(MOST_AXES, dtype=dtypes.int64, device=device)
        if self.is_first:
            self._like = inputs[0]
        else:
            found = self._receive(axes, rank - 1).tolist()
            shape = tuple(found[1 : 1 + found[0]])
            self._like = Tensor.zeros(shape, dtype=self.params[0].dtype, device=device)
        if not self.is_last:
            with no_grad():
                self._out = Tensor.zeros(
                    self.stage(self._like).shape, dtype=self.params[0].dtype, device=device
                )
            numbers = [len(self._out.shape), *self._out.shape]
            numbers += [0] * (MOST_AXES - len(numbers))
            self._send(Tensor._made_of(numbers, device=device), rank + 1).wait()

    def _send(self, x: Any, to: int) -> Sending:
        return start_send(x.detach(), to, self.group, self.timeout_ms)

    def _receive(self, like: Any, source: int) -> Tensor:
        return receive(like, source, self.group, self.timeout_ms)
