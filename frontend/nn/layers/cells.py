"""Cells: one step of a recurrent layer.

In       what comes in, and the state before
Out      the state after: `RNNCell`, `LSTMCell`, `GRUCell`, their base `RNNCellBase`; `STEPS`, the same as functions of
         products made already
Next     recurrent.py (whole sequences)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn import init
from hcq.frontend.nn.layers.sizes import drawn, positive
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType

State = tuple[Tensor, ...]


def _tanh(x: Tensor, h: Tensor, state: State) -> State:
    return ((x + h).tanh(),)


def _relu(x: Tensor, h: Tensor, state: State) -> State:
    return ((x + h).relu(),)


def _lstm(x: Tensor, h: Tensor, state: State) -> State:
    let_in, keep, new, let_out = (x + h).chunk(4, -1)
    cell = keep.sigmoid() * state[1] + let_in.sigmoid() * new.tanh()
    return let_out.sigmoid() * cell.tanh(), cell


def _gru(x: Tensor, h: Tensor, state: State) -> State:
    x_reset, x_keep, x_new = x.chunk(3, -1)
    h_reset, h_keep, h_new = h.chunk(3, -1)
    new = (x_new + (x_reset + h_reset).sigmoid() * h_new).tanh()
    return (new + (x_keep + h_keep).sigmoid() * (state[0] - new),)


class Step(NamedTuple):
    """W_ih x + b_ih, W_hh h + b_hh and the state -> the next state, which has as many parts."""

    step: Callable[[Tensor, Tensor, State], State]
    parts: int
    gates: int


STEPS = {
    "RNN_TANH": Step(_tanh, 1, 1),
    "RNN_RELU": Step(_relu, 1, 1),
    "LSTM": Step(_lstm, 2, 4),
    "GRU": Step(_gru, 1, 3),
}


class RNNCellBase(Module):
    """What cells have in common: weight_ih (chunks * hidden, input), weight_hh (chunks * hidden, hidden), two biases.

    num_chunks   how many gates a step has; `mode`, of a subclass, says which

    >>> isinstance(nn.GRUCell(4, 8), nn.RNNCellBase), nn.RNNCellBase(4, 8, True, 3).weight_ih.shape
    (True, (24, 4))
    """

    mode = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        positive(type(self).__name__, input_size=input_size, hidden_size=hidden_size, num_chunks=num_chunks)
        self.input_size, self.hidden_size = input_size, hidden_size
        self._has_bias = bias
        rows, bound = num_chunks * hidden_size, 1.0 / math.sqrt(hidden_size)
        self.weight_ih = drawn((rows, input_size), bound, dtype, device)
        self.weight_hh = drawn((rows, hidden_size), bound, dtype, device)
        self.bias_ih = drawn((rows,), bound, dtype, device) if bias else None
        self.bias_hh = drawn((rows,), bound, dtype, device) if bias else None

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """(batch, input_size) and the state (batch, hidden_size) -> the next state; the batch may be left out."""
        if self.mode not in STEPS:
            return super().forward(input, hx)  # which says that there is none
        if input.shape[-1:] != (self.input_size,) or input.ndim not in (1, 2):
            raise UsageError(
                f"[{type(self).__name__}] {input.shape}: it needs (batch, {self.input_size}) or ({self.input_size},)."
            )
        step = STEPS[self.mode]
        if hx is None:
            zeros = input.zeros((*input.shape[:-1], self.hidden_size), dtype=input.dtype, device=input.device)
            state: State = (zeros,) * step.parts
        else:
            state = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
            if not all(isinstance(part, Tensor) for part in state):
                raise UsageError(f"[{type(self).__name__}] hx {shown(hx)}: give {step.parts} tensors.")
        wanted = (*input.shape[:-1], self.hidden_size)
        if len(state) != step.parts or any(part.shape != wanted for part in state):
            raise UsageError(
                f"[{type(self).__name__}] states of shapes {[part.shape for part in state]}: it needs {step.parts} of "
                f"shape {wanted}."
            )
        new = step.step(
            input.linear(self.weight_ih, self.bias_ih), state[0].linear(self.weight_hh, self.bias_hh), state
        )
        return new if step.parts > 1 else new[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self._has_bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of an RNN.

    >>> nn.RNNCell(4, 8)(Tensor.zeros(4), Tensor.zeros(8)).shape
    (8,)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: DType | None = None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise UsageError(f"[RNNCell] nonlinearity {nonlinearity!r}: use 'tanh' or 'relu'.")
        self.nonlinearity, self.mode = nonlinearity, f"RNN_{nonlinearity.upper()}"
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)

    def extra_repr(self) -> str:
        other = f", nonlinearity={self.nonlinearity}" if self.nonlinearity != "tanh" else ""
        return super().extra_repr() + other


class _Gated(RNNCellBase):
    """A cell with as many gates as its mode has."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(input_size, hidden_size, bias, STEPS[self.mode].gates, device, dtype)


class LSTMCell(_Gated):
    """One step of an LSTM; the state is (h, c).

    >>> h, c = nn.LSTMCell(4, 8)(Tensor.zeros(3, 4))
    >>> h.shape, c.shape
    ((3, 8), (3, 8))
    """

    mode = "LSTM"


class GRUCell(_Gated):
    """One step of a GRU.

    >>> nn.GRUCell(4, 8)(Tensor.zeros(3, 4)).shape
    (3, 8)
    """

    mode = "GRU"
