"""Recurrent layers: a state that goes from step to step along a sequence.

In       sequences (length, batch, features), or (batch, length, features) with batch_first, or packed ones
Out      `RNN`, `LSTM`, `GRU`, their base `RNNBase`
Next     cells.py (one step), ../utils/rnn.py (packed sequences)

All inputs of a layer are multiplied by its weights at once; what goes step by step is the state alone.
"""

from __future__ import annotations

import math
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn import functional as F
from hcq.frontend.nn import init
from hcq.frontend.nn.layers.cells import STEPS, State
from hcq.frontend.nn.layers.sizes import drawn, positive, probability
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.utils.rnn import PackedSequence
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType


class RNNBase(Module):
    """Several layers, each in one direction or in both: what RNN, LSTM and GRU have in common.

    mode            "RNN_TANH", "RNN_RELU", "LSTM" or "GRU"
    num_layers      layers on top of each other
    batch_first     the batch is the first axis, of inputs and outputs; not of states
    dropout         between layers, in training
    bidirectional   each layer reads the sequence backwards, too, and gives both results side by side

    >>> isinstance(nn.LSTM(3, 4), nn.RNNBase), nn.RNNBase("GRU", 3, 4)(Tensor.ones(5, 1, 3))[0].shape
    (True, (5, 1, 4))
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        call = type(self).__name__
        if mode not in STEPS:
            raise UsageError(f"[{call}] mode {shown(mode)}: use one of {list(STEPS)}.")
        self.mode = mode
        positive(call, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if proj_size and (mode != "LSTM" or not 0 < proj_size < hidden_size):
            raise UsageError(f"[{call}] proj_size {proj_size}: an LSTM takes one from 1 to hidden_size - 1.")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, probability(call, dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._suffixes: list[str] = []
        bound = 1.0 / math.sqrt(hidden_size)
        result = proj_size or hidden_size
        for layer in range(num_layers):
            taken = input_size if layer == 0 else result * (2 if bidirectional else 1)
            for way in ("", "_reverse") if bidirectional else ("",):
                suffix = f"l{layer}{way}"
                self._suffixes.append(suffix)
                rows = STEPS[mode].gates * hidden_size
                setattr(self, f"weight_ih_{suffix}", drawn((rows, taken), bound, dtype, device))
                setattr(self, f"weight_hh_{suffix}", drawn((rows, result), bound, dtype, device))
                if bias:
                    setattr(self, f"bias_ih_{suffix}", drawn((rows,), bound, dtype, device))
                    setattr(self, f"bias_hh_{suffix}", drawn((rows,), bound, dtype, device))
                if proj_size:
                    setattr(
                        self, f"weight_hr_{suffix}", drawn((proj_size, hidden_size), bound, dtype, device)
                    )

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing; it is there for programs that call it."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """A sequence and the first state -> the result of each step, and the last state.

        input   (length, features) or (length, batch, features), the batch first with batch_first, or a PackedSequence
        hx      (layers * directions, batch, hidden_size), for an LSTM two of them; zeros unless given
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if not isinstance(input, Tensor) or input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise UsageError(
                f"[{type(self).__name__}] {getattr(input, 'shape', input)}: it needs (length, {self.input_size}) or "
                f"(length, batch, {self.input_size}), or a PackedSequence."
            )
        is_single = input.ndim == 2
        x = input.unsqueeze(1) if is_single else input.transpose(0, 1) if self.batch_first else input
        length, batch = x.shape[:2]
        if length == 0:
            raise UsageError(f"[{type(self).__name__}] {input.shape}: the sequence is empty.")
        states = self._first(x, batch, hx, is_single)
        y, last = self._run(x.reshape(length * batch, x.shape[2]), [batch] * length, states)
        result = y.reshape(length, batch, y.shape[-1])
        if is_single:
            return result.squeeze(1), self._given_back([part.squeeze(1) for part in last])
        return result.transpose(0, 1) if self.batch_first else result, self._given_back(last)

    def _packed(self, x: PackedSequence, hx: Any) -> Any:
        batch = x.batch_sizes[0]
        states = self._first(x.data, batch, hx, False)
        if x.sorted_indices is not None and hx is not None:
            states = [part[:, x.sorted_indices] for part in states]
        y, last = self._run(x.data, list(x.batch_sizes), states)
        if x.unsorted_indices is not None:
            last = [part[:, x.unsorted_indices] for part in last]
        return PackedSequence(y, x.batch_sizes, x.sorted_indices, x.unsorted_indices), self._given_back(last)

    def _first(self, x: Tensor, batch: int, hx: Any, is_single: bool) -> list[Tensor]:
        """The states to begin with: one for each part of the state, over all layers and directions."""
        widths = [self.proj_size or self.hidden_size, self.hidden_size][: STEPS[self.mode].parts]
        shapes = [(len(self._suffixes), batch, width) for width in widths]
        if hx is None:
            return [x.zeros(shape, dtype=x.dtype, device=x.device) for shape in shapes]
        given = list(hx) if isinstance(hx, (tuple, list)) else [hx]
        if not all(isinstance(part, Tensor) for part in given):
            raise UsageError(f"[{type(self).__name__}] hx {shown(hx)}: give tensors of shapes {shapes}.")
        given = [part.unsqueeze(1) if is_single and part.ndim == 2 else part for part in given]
        if [part.shape for part in given] != shapes:
            raise UsageError(
                f"[{type(self).__name__}] states of shapes {[part.shape for part in given]}: it needs {shapes}."
            )
        return given

    def _given_back(self, last: list[Tensor]) -> Any:
        return tuple(last) if len(last) > 1 else last[0]

    def _run(self, x: Tensor, sizes: list[int], first: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """All layers over rows that are steps one after the other, `sizes` of them each."""
        last: list[list[Tensor]] = [[] for _ in first]
        ways = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            results = []
            for way in range(ways):
                place = layer * ways + way
                state = tuple(part[place] for part in first)
                y, state = self._one_way(x, sizes, state, self._suffixes[place], way == 1)
                results.append(y)
                for parts, part in zip(last, state):
                    parts.append(part)
            x = results[0] if ways == 1 else results[0].cat(results[1], dim=-1)
        return x, [Tensor.stack(parts) for parts in last]

    def _one_way(
        self, x: Tensor, sizes: list[int], state: State, suffix: str, backwards: bool
    ) -> tuple[Tensor, State]:
        step = STEPS[self.mode].step
        project = getattr(self, f"weight_hr_{suffix}", None)
        weight = getattr(self, f"weight_hh_{suffix}")
        shift = getattr(self, f"bias_hh_{suffix}", None)
        inputs = x.linear(getattr(self, f"weight_ih_{suffix}"), getattr(self, f"bias_ih_{suffix}", None))
        starts = [sum(sizes[:place]) for place in range(len(sizes))] if len(set(sizes)) > 1 else None
        results: list[Tensor] = []
        for place in reversed(range(len(sizes))) if backwards else range(len(sizes)):
            size = sizes[place]
            start = place * size if starts is None else starts[place]
            active = tuple(part if part.shape[0] == size else part[:size] for part in state)
            new = step(inputs[start : start + size], active[0].linear(weight, shift), active)
            if project is not None:
                new = (new[0].linear(project), *new[1:])
            results.append(new[0])
            # sequences that have ended, or not begun, keep their state
            state = tuple(
                part if part.shape[0] == old.shape[0] else part.cat(old[size:])
                for part, old in zip(new, state)
            )
        return Tensor.cat(results[::-1] if backwards else results), state

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        parts += [f"proj_size={self.proj_size}"] if self.proj_size else []
        parts += [f"num_layers={self.num_layers}"] if self.num_layers != 1 else []
        parts += [f"bias={self.bias}"] if not self.bias else []
        parts += [f"batch_first={self.batch_first}"] if self.batch_first else []
        parts += [f"dropout={self.dropout}"] if self.dropout else []
        parts += [f"bidirectional={self.bidirectional}"] if self.bidirectional else []
        return ", ".join(parts)


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu instead of tanh.

    >>> y, h = nn.RNN(3, 4, num_layers=2)(Tensor.ones(5, 1, 3))
    >>> y.shape, h.shape
    ((5, 1, 4), (2, 1, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise UsageError(f"[RNN] nonlinearity {nonlinearity!r}: use 'tanh' or 'relu'.")
        self.nonlinearity = nonlinearity
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, 0, device, dtype,
        )  # fmt: skip


class LSTM(RNNBase):
    """Long short-term memory; the state is (h, c). proj_size makes h shorter than c, by a matrix.

    Source  Hochreiter and Schmidhuber 1997; Sak et al. 2014 (projection)

    >>> y, (h, c) = nn.LSTM(3, 4, batch_first=True, bidirectional=True)(Tensor.ones(2, 5, 3))
    >>> y.shape, h.shape, c.shape
    ((2, 5, 8), (2, 2, 4), (2, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """Gated recurrent units.

    Source  Cho et al. 2014

    >>> output, state = nn.GRU(4, 8, num_layers=2, bidirectional=True)(Tensor.zeros(5, 3, 4))
    >>> output.shape, state.shape
    ((5, 3, 16), (4, 3, 8))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )  # fmt: skip
