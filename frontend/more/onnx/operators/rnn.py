"""Recurrent layers: RNN, GRU, LSTM, step by step.

In       (length, batch, features), weights for each direction
Out      all outputs, the last ones, and LSTM's last state
Changes  table.py's table
Next     control.py (Loop and Scan, whose steps are graphs)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor

Act = Callable[[Tensor], Tensor]


def _activation(name: str, alpha: float | None, beta: float | None) -> Act:
    """A function by ONNX's name, with its numbers."""

    def number(value: float | None, usual: float) -> float:
        return usual if value is None else value

    found: dict[str, Act] = {
        "sigmoid": lambda x: x.sigmoid(),
        "tanh": lambda x: x.tanh(),
        "relu": lambda x: x.maximum(0),
        "affine": lambda x: x * number(alpha, 1.0) + number(beta, 0.0),
        "leakyrelu": lambda x: x.leaky_relu(number(alpha, 0.01)),
        "thresholdedrelu": lambda x: (x > number(alpha, 1.0)).where(x, x * 0),
        "scaledtanh": lambda x: (x * number(beta, 1.0)).tanh() * number(alpha, 1.0),
        "hardsigmoid": lambda x: (x * number(alpha, 0.2) + number(beta, 0.5)).clamp(0, 1),
        "elu": lambda x: x.elu(number(alpha, 1.0)),
        "softsign": lambda x: x / (x.abs() + 1),
        "softplus": lambda x: x.softplus(),
    }
    if name.lower() not in found:
        raise UsageError(f"activation {name!r}; known are {', '.join(found)}")
    return found[name.lower()]


class Cells(NamedTuple):
    """The attributes that all recurrent layers have."""

    activation_alpha: Any = None
    activation_beta: Any = None
    activations: Any = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0

    def functions(self, usual: str) -> list[list[Act]]:
        """The activations of each direction."""
        each, directions = len(usual.split()), len(self.backwards())
        numbers = (self.activation_alpha, self.activation_beta)
        given = [
            _activation(name, *(values[i] if values and i < len(values) else None for values in numbers))
            for i, name in enumerate(self.activations or usual.split() * directions)
        ]
        return [given[d * each : (d + 1) * each] for d in range(directions)]

    def backwards(self) -> list[bool]:
        """Whether each direction goes backwards."""
        known = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
        if self.direction not in known:
            raise UsageError(f"direction {self.direction!r}; known are {', '.join(known)}")
        return known[self.direction]

    def clipped(self, x: Tensor) -> Tensor:
        """Within the bounds of what goes into an activation."""
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def run(
        self, x: Tensor, r: Tensor, lengths: Tensor | None, starts: list[Tensor | None], make: Any
    ) -> Any:
        """All directions, stacked as ONNX wants them. make(d) is the step of a direction."""
        x = x.transpose(0, 1) if self.layout else x
        outputs, lasts = [], []
        for d, backwards in enumerate(self.backwards()):
            states = []
            for start in starts:
                if start is None:
                    states.append(Tensor.zeros(x.shape[1], r.shape[2], device=x.device, dtype=x.dtype))
                else:
                    states.append(start[:, d] if self.layout else start[d])
            found, last = _recurrent(x, lengths, backwards, states, make(d))
            outputs.append(found)
            lasts.append(last)
        y = Tensor.stack(outputs, dim=1)  # (length, directions, batch, hidden)
        ends = [Tensor.stack(last, dim=1 if self.layout else 0) for last in zip(*lasts)]
        return y.permute(2, 0, 1, 3) if self.layout else y, *ends


def _recurrent(
    x: Tensor,
    lengths: Tensor | None,
    backwards: bool,
    states: list[Tensor],
    step: Callable[..., list[Tensor]],
) -> tuple[Tensor, list[Tensor]]:
    """A step for each place of time; rows that have ended keep their state, and give zeros."""
    outputs: list[Any] = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if backwards else range(x.shape[0]):
        new = step(x[t], *states)
        if lengths is not None:
            runs = (lengths > t).reshape(-1, 1)
            outputs[t] = runs.where(new[0], new[0] * 0)
            new = [runs.where(now, old) for now, old in zip(new, states)]
        else:
            outputs[t] = new[0]
        states = new
    return Tensor.stack(outputs, dim=0), states


@operator("RNN", since=7, cells=Cells)
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    *,
    cells: Cells,
) -> Any:
    """One gate: h = f(w x + r h + b)."""
    hidden, acts = r.shape[2], cells.functions("Tanh")

    def make(d: int) -> Any:
        def step(now: Tensor, state: Tensor) -> list[Tensor]:
            total = now @ w[d].transpose(0, 1) + state @ r[d].transpose(0, 1)
            if b is not None:
                total = total + b[d][:hidden] + b[d][hidden:]
            return [acts[d][0](cells.clipped(total))]

        return step

    return cells.run(x, r, lengths, [h], make)


@operator("GRU", since=7, cells=Cells)
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    *,
    linear_before_reset: int = 0,
    cells: Cells,
) -> Any:
    """Gates in the order z, r, h."""
    hidden, acts = r.shape[2], cells.functions("Sigmoid Tanh")

    def make(d: int) -> Any:
        gate, candidate = acts[d]

        def step(now: Tensor, state: Tensor) -> list[Tensor]:
            new = now @ w[d].transpose(0, 1)
            if b is not None:
                new = new + b[d][: 3 * hidden]
            bias = b[d][3 * hidden :] if b is not None else None
            old = state @ r[d][: 2 * hidden].transpose(0, 1)
            both = new[:, : 2 * hidden] + (old if bias is None else old + bias[: 2 * hidden])
            update, reset = gate(cells.clipped(both)).chunk(2, 1)
            inner = r[d][2 * hidden :].transpose(0, 1)
            if linear_before_reset:
                past = state @ inner
                past = (past if bias is None else past + bias[2 * hidden :]) * reset
            else:
                past = (reset * state) @ inner
                past = past if bias is None else past + bias[2 * hidden :]
            fresh = candidate(cells.clipped(new[:, 2 * hidden :] + past))
            return [(1 - update) * fresh + update * state]

        return step

    return cells.run(x, r, lengths, [h], make)


@operator("LSTM", since=7, cells=Cells)
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    peepholes: Tensor | None = None,
    *,
    input_forget: int = 0,
    cells: Cells,
) -> Any:
    """Gates in the order i, o, f, c."""
    hidden, acts = r.shape[2], cells.functions("Sigmoid Tanh Tanh")

    def make(d: int) -> Any:
        gate, candidate, shown = acts[d]

        def step(now: Tensor, state: Tensor, cell: Tensor) -> list[Tensor]:
            total = now @ w[d].transpose(0, 1) + state @ r[d].transpose(0, 1)
            if b is not None:
                total = total + b[d][: 4 * hidden] + b[d][4 * hidden :]
            into, out, forget, fresh = total.chunk(4, 1)
            if peepholes is not None:
                see_in, see_out, see_forget = peepholes[d].chunk(3, 0)
                into, forget = into + see_in * cell, forget + see_forget * cell
            into = gate(cells.clipped(into))
            kept = 1 - into if input_forget else gate(cells.clipped(forget))
            cell = kept * cell + into * candidate(cells.clipped(fresh))
            if peepholes is not None:
                out = out + see_out * cell
            return [gate(cells.clipped(out)) * shown(cell), cell]

        return step

    return cells.run(x, r, lengths, [h, c], make)
