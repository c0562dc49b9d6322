"""Stretching: how fast the numbers of a head turn with a token's place, where a model looks further than it first did.

In       what a file says of rotary positions
Out      a `Stretch`: speeds of the pairs, and what turned numbers are multiplied by
Next     configuration.py (who keeps one), memory.py (tables of turns)
Source   Chen et al. 2023 (linear), Peng et al. 2023 (YaRN), Ding et al. 2024 (LongRoPE), Llama Team 2024;
         transformers' rope_parameters; llama.cpp's keys rope.scaling
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.facts import Facts


@dataclass(frozen=True, slots=True)
class Stretch:
    """None at all. strength: what cosines and sines are multiplied by."""

    strength: float = 1.0

    def speeds(self, base: float, size: int, room: int) -> list[float]:
        """How far each pair of `size` numbers turns from one place to the next, in radians, with room for so many."""
        return [base ** (-2 * i / size) for i in range(size // 2)]


PLAIN = Stretch()


@dataclass(frozen=True, slots=True)
class Linear(Stretch):
    """All turn more slowly by a factor."""

    factor: float = 1.0

    def speeds(self, base: float, size: int, room: int) -> list[float]:
        """As of `Stretch`."""
        return [speed / self.factor for speed in PLAIN.speeds(base, size, room)]


@dataclass(frozen=True, slots=True)
class Llama3(Stretch):
    """Slow ones are slowed by a factor, fast ones are not, and between there is a mixture.

    low, high  turns within `old` tokens that are slow, and fast
    """

    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    old: float = 8192.0

    def speeds(self, base: float, size: int, room: int) -> list[float]:
        """As of `Stretch`."""
        found = []
        for speed in PLAIN.speeds(base, size, room):
            share = (self.old * speed / (2 * math.pi) - self.low) / (self.high - self.low)
            share = min(max(share, 0.0), 1.0)
            found.append((1 - share) * speed / self.factor + share * speed)
        return found


@dataclass(frozen=True, slots=True)
class Yarn(Stretch):
    """As Llama 3's, with a mixture that goes evenly from one pair to another.

    fast, slow  turns within `old` tokens of the two pairs; is_whole: these are pairs that there are, further apart
    """

    factor: float = 1.0
    old: float = 4096.0
    fast: float = 32.0
    slow: float = 1.0
    is_whole: bool = True

    def speeds(self, base: float, size: int, room: int) -> list[float]:
        """As of `Stretch`."""
        first, last = (
            size * math.log(self.old / (turns * 2 * math.pi)) / (2 * math.log(base))
            for turns in (self.fast, self.slow)
        )
        if self.is_whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, size - 1)
        distance = last - first or 0.001
        found = []
        for i, speed in enumerate(PLAIN.speeds(base, size, room)):
            share = min(max((i - first) / distance, 0.0), 1.0)
            found.append(share * speed / self.factor + (1 - share) * speed)
        return found


@dataclass(frozen=True, slots=True)
class Long(Stretch):
    """Each pair is slowed by a factor of its own: one for up to `old` tokens, another where there is room for more.

    short, long  the factors; () where they are tensors of the file
    """

    old: float = 4096.0
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()

    def speeds(self, base: float, size: int, room: int) -> list[float]:
        """As of `Stretch`."""
        factors = self.long if self.is_long(room) else self.short
        plain = PLAIN.speeds(base, size, room)
        return [speed / factor for speed, factor in zip(plain, factors or [1.0] * len(plain), strict=True)]

    def is_long(self, room: int) -> bool:
        """Whether the factors are those for more tokens than the model first looked at."""
        return room > self.old


def stretch_of_config(rotary: Facts, config: Facts, size: int) -> Stretch:
    """What a config.json says.

    rotary  its rope_parameters; size  how many numbers turn
    Raises  UsageError for a kind that is not known
    """
    kind = rotary.text("rope_type", rotary.text("type", "default"))
    if kind == "default":
        return PLAIN
    if kind == "linear":
        return Linear(factor=rotary.real("factor", low=1e-6))
    context = config.real("max_position_embeddings", low=1.0)
    key = "original_max_position_embeddings"
    old = rotary.real(key, config.real(key, context, low=1.0), low=1.0)
    if kind == "llama3":
        low, high = (rotary.real(f"{word}_freq_factor", low=1e-6) for word in ("low", "high"))
        return _checked(Llama3(1.0, rotary.real("factor", low=1e-6), low, high, rotary.real(key, low=1e-6)))
    if kind == "yarn":
        factor = rotary.real("factor", context / old, low=1e-6)
        strength = _yarn_strength(factor)
        scales = [rotary.real(word, 0.0) for word in ("mscale", "mscale_all_dim")]
        if all(scales):
            strength = _yarn_strength(factor, scales[0]) / _yarn_strength(factor, scales[1])
        fast, slow = (rotary.real("beta_fast", 32.0, low=1e-6), rotary.real("beta_slow", 1.0, low=1e-6))
        strength = rotary.real("attention_factor", strength)
        return _checked(Yarn(strength, factor, old, fast, slow, rotary.flag("truncate", True)))
    if kind in ("longrope", "su"):
        factor = rotary.real("factor", context / old, low=1e-6)
        strength = math.sqrt(1 + math.log(factor) / math.log(old)) if factor > 1 and old > 1 else 1.0
        short, long = (_factors(rotary, f"{word}_factor", size) for word in ("short", "long"))
        return Long(rotary.real("attention_factor", strength), old, short, long)
    raise UsageError(
        f"[llm] positions are stretched by {shown(kind)}; known are linear, llama3, yarn and longrope."
    )


def stretch_of_gguf(facts: Facts, has_factors: bool) -> Stretch:
    """What metadata of a GGUF file says.

    has_factors  it has tensors of factors for short and for long texts, as LongRoPE needs
    Raises       UsageError for a kind that is not known
    """
    kind = facts.text("rope.scaling.type", "longrope" if has_factors else "none")
    strength = facts.real("rope.scaling.attn_factor", 1.0)
    if kind == "none":
        return PLAIN
    if kind == "linear":
        return Linear(factor=facts.real("rope.scaling.factor", low=1e-6))
    old = facts.real("rope.scaling.original_context_length", facts.real("context_length", low=1.0), low=1.0)
    if kind == "yarn":
        if facts.real("rope.scaling.yarn_ext_factor", 1.0) != 1.0 or facts.real(
            "rope.scaling.yarn_log_multiplier", 0.0
        ):
            raise UsageError(
                "[llm] positions are stretched by YaRN with a yarn_ext_factor or yarn_log_multiplier of its own, "
                "which is not known."
            )
        factor = facts.real("rope.scaling.factor", low=1e-6)
        fast = facts.real("rope.scaling.yarn_beta_fast", 32.0, low=1e-6)
        slow = facts.real("rope.scaling.yarn_beta_slow", 1.0, low=1e-6)
        strength *= facts.real("rope.scaling.yarn_attn_factor", 1.0) * _yarn_strength(factor)
        return _checked(Yarn(strength, factor, old, fast, slow))
    if kind == "longrope" and has_factors:
        return Long(strength, old)
    raise UsageError(
        f"[llm] positions are stretched by {shown(kind)}; known are linear, yarn, longrope with its factors and "
        "Llama 3's."
    )


def _yarn_strength(factor: float, scale: float = 1.0) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _factors(rotary: Facts, key: str, size: int) -> tuple[float, ...]:
    found = tuple(map(float, rotary.values(key, float, "numbers") or ()))
    check_factors(found, size, key)
    return found


def check_factors(factors: Sequence[float], size: int, name: str) -> None:
    """Raises UsageError where these are no factors of the pairs of `size` numbers."""
    if len(factors) != size // 2 or not all(0 < factor < math.inf for factor in factors):
        raise UsageError(
            f"[llm] {name}, by which positions are divided, has to be {size // 2} numbers, which are not all above 0."
        )


def _checked(found: Stretch) -> Stretch:
    if isinstance(found, Llama3) and not found.low < found.high:
        raise UsageError(
            f"[llm] positions are stretched between {found.low} and {found.high} turns: the first has to be "
            "less than the second."
        )
    if isinstance(found, Yarn) and not found.slow < found.fast:
        raise UsageError(
            f"[llm] positions are stretched between {found.fast} and {found.slow} turns: the first has to be "
            "more than the second."
        )
    return found
