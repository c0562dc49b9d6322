"""Memory: keys and values of sequences, and what tokens at their places see of them.

In       a configuration; queries, keys and values of some tokens
Out      `Piece`, the next tokens of one sequence, and `Step`, one token of every sequence: what each attends to
Changes  the tokens' keys and values are written where they stand
Next     model.py (who asks, layer by layer), session.py (one sequence), batch.py (several)
Source   Su et al. 2021 (rotary positions), Ainslie et al. 2023 (heads in groups), Gemma Team 2024 (caps)

Sequences lie one behind the other, each in a slot of `room` tokens. What stands beyond a sequence's last token is never
looked at, and is written before it is one of the sequence's: so slots need no clearing, and padding does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hcq.frontend.more.llm.configuration import Configuration
from hcq.frontend.more.llm.stretching import PLAIN, Long, check_factors
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class Memory:
    """Keys and values of each layer, (kv_heads, slots * room, head_size), and tables with a row for each place.

    positions  learned ones, (room, width); None where turns are of rotary ones
    """

    def __init__(
        self, model: Configuration, weights: Any, room: int, slots: int = 1, device: str | None = None
    ):
        self.model = model
        self.room = room
        self.slots = slots
        shape = (model.kv_heads, slots * room, model.head_size)
        self.keys = [Tensor.zeros(*shape, device=device).contiguous() for _ in range(model.depth)]
        self.values = [Tensor.zeros(*shape, device=device).contiguous() for _ in range(model.depth)]
        self.places = Tensor.arange(room, device=device, dtype=dtypes.int32).contiguous()
        self._turns: tuple[Tensor, Tensor] | None = None
        self._local_turns: tuple[Tensor, Tensor] | None = None
        self.positions: Tensor | None = None
        if model.rotary_base:
            self._turns = turns(model, room, device, slower_of(model, weights, room))
            if model.local_base:
                local = replace(model, rotary_base=model.local_base, stretch=PLAIN)
                self._local_turns = turns(local, room, device)
        else:
            learned = weights["positions"][:room].cast(dtypes.float32)
            # no token stands beyond what was learned; padding may
            self.positions = learned.pad((0, 0, 0, room - learned.shape[0])).contiguous()
        tables = [
            table
            for table in (*(self._turns or ()), *(self._local_turns or ()), self.positions)
            if table is not None
        ]
        Tensor.realize(self.places, *self.keys, *self.values, *tables)

    def turns_of(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines by which a layer's queries and keys are turned, rows for places; None where none are."""
        is_local = self._local_turns is not None and self.model.is_windowed(layer)
        return self._local_turns if is_local else self._turns

    def clear(self, slot: int) -> None:
        """Zeros where a sequence was."""
        for side in (*self.keys, *self.values):
            side[:, slot * self.room : (slot + 1) * self.room] = 0.0
        Tensor.realize(*self.written())

    def written(self) -> list[Tensor]:
        """What a recording has to compute beside its results."""
        return [*self.keys, *self.values]


class Piece:
    """The next tokens of one sequence.

    length  how many
    count   how many the sequence has with these: a bound variable, or an int
    slot    which sequence: a bound variable, or an int
    last    after which of the tokens logits are wanted; those behind it are padding
    """

    def __init__(self, memory: Memory, length: int, count: Any, slot: Any = 0, last: Any = None):
        self.memory = memory
        self._length, self._count = length, count
        self._first = slot * memory.room  # row of the sequence's first token
        self._last = length - 1 if last is None else last

    def rows(self, table: Tensor) -> Tensor:
        """The tokens' rows of a table with a row for each place."""
        return table[self._count - self._length : self._count]

    def wanted(self, x: Tensor) -> Tensor:
        """The rows of (tokens, width) after which logits are wanted."""
        return x[self._last].reshape(1, x.shape[-1])

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What queries (heads, tokens, head_size) find, of that shape, once their keys and values are kept."""
        memory, length, count = self.memory, self._length, self._count
        keys, values = memory.keys[layer], memory.values[layer]
        first, end = self._first, self._first + count
        keys[:, end - length : end] = k
        values[:, end - length : end] = v
        if memory.slots > 1:
            keys, values = keys[:, first : first + memory.room], values[:, first : first + memory.room]
        model = memory.model
        group = model.heads // model.kv_heads
        # the heads of a group look at the same keys, one below the other
        flat = q.reshape(model.kv_heads, group * length, model.head_size)
        window = _window(memory, layer)
        keys, values = keys[:, :count], values[:, :count]
        mask, places = None, memory.places[:count]
        if length == 1:
            if window:
                mask = places > Tensor._made_of(count - 1 - window, device=q.device)
        else:
            here = memory.places[count - length : count].reshape(length, 1)
            mask = places <= here
            if window:
                mask = mask & (places > here - window)
            mask = mask.reshape(1, length, count).expand(group, length, count).reshape(group * length, count)
        return attended(model, flat, keys, values, mask).reshape(model.heads, length, model.head_size)


class Step:
    """One token of every sequence.

    places   where each of them stands, int32, (slots,)
    longest  how many tokens the longest sequence has with these, of those whose logits are wanted: a bound variable
    """

    def __init__(self, memory: Memory, places: Tensor, longest: Any):
        self.memory = memory
        self._places, self._longest = places, longest
        slots = Tensor.arange(memory.slots, device=places.device, dtype=dtypes.int32)
        self._rows = slots * memory.room + places

    def rows(self, table: Tensor) -> Tensor:
        """The tokens' rows of a table with a row for each place."""
        return table[self._places]

    def wanted(self, x: Tensor) -> Tensor:
        """The rows of (tokens, width) after which logits are wanted: all."""
        return x

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What queries (heads, slots, head_size) find, of that shape, once their keys and values are kept."""
        memory, longest = self.memory, self._longest
        model, slots = memory.model, memory.slots
        memory.keys[layer][:, self._rows] = k
        memory.values[layer][:, self._rows] = v
        shape = (model.kv_heads, slots, memory.room, model.head_size)
        keys, values = (side[layer].reshape(shape)[:, :, :longest] for side in (memory.keys, memory.values))
        q = q.reshape(model.kv_heads, -1, slots, model.head_size).swapaxes(1, 2)
        here, places = self._places.reshape(slots, 1, 1), memory.places[:longest].reshape(1, 1, -1)
        mask = places <= here
        if window := _window(memory, layer):
            mask = mask & (places > here - window)
        found = attended(model, q, keys, values, mask)
        return found.swapaxes(1, 2).reshape(model.heads, slots, model.head_size)


def attended(model: Configuration, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention, with scores scaled and bent as the model has it."""
    scale = model.attention_scale or model.head_size**-0.5
    if not model.attention_cap:
        return q.scaled_dot_product_attention(keys, values, attn_mask=mask, scale=scale)
    scores = capped((q @ keys.swapaxes(-1, -2)) * scale, model.attention_cap)
    if mask is not None:
        scores = mask.where(scores, -math.inf)
    return scores.softmax(-1) @ values


def capped(x: Tensor, cap: float) -> Tensor:
    """Numbers bent to stay within a cap; 0 for none."""
    return (x / cap).tanh() * cap if cap else x


def _window(memory: Memory, layer: int) -> int:
    """How many tokens back the layer looks; 0 where that is all there is room for."""
    window = memory.model.window_of(layer)
    return window if window < memory.room else 0


def slower_of(model: Configuration, weights: Any, room: int) -> list[float]:
    """By what the file's tensors say that the speeds of positions are divided; nothing where it has none."""
    name = "rotary_factors"
    if isinstance(model.stretch, Long) and "rotary_long" in weights:
        name = "rotary_long" if model.stretch.is_long(room) else "rotary_short"
    if name not in weights:
        return []
    factors = weights[name].cast(dtypes.float32).tolist()
    check_factors(factors, model.rotary_size, name)
    return list(factors)


def turns(
    model: Configuration, room: int, device: str | None = None, slower: Sequence[float] = ()
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary positions, (room, rotary_size / 2) each; speeds are divided by `slower`."""
    speeds = model.stretch.speeds(model.rotary_base, model.rotary_size, room)
    if slower:
        speeds = [speed / factor for speed, factor in zip(speeds, slower, strict=True)]
    # on the host, in its 64 bits: some GPUs have no numbers of that size
    angles = [[place * speed for speed in speeds] for place in range(room)]
    strength = model.stretch.strength
    cosines, sines = (
        [[turn(angle) * strength for angle in row] for row in angles] for turn in (math.cos, math.sin)
    )
    return Tensor._made_of(cosines, device=device), Tensor._made_of(sines, device=device)
