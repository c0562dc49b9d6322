"""Shadowed: numbers of threads of which some bits were never written, and what NumPy makes of them.

In       an array, and a shadow of the same size: a bit is set where nobody wrote
Out      `Shadowed`, an array that carries its shadow through what is done to it; `plain`, `shadow_of`
Next     following.py (who makes them, and looks for their uses), hcq/emu/shader/shadow_bits.py (which bits)
Source   NumPy's manual: "Subclassing ndarray", "NEP 13", "NEP 18"

What is not listed here makes numbers that count as written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.emu.shader import shadow_bits
from hcq.emu.shader.unwritten import Read

Array = NDArray[Any]
SUMS = ("add", "subtract", "multiply", "negative")  # of integers, of which the low bits are kept
COMPARES = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
WHOLE = (
    "divide", "sqrt", "trunc", "floor", "ceil", "absolute", "fabs", "maximum", "minimum", "fmax", "fmin", "fmod",
    "remainder", "floor_divide", "isnan", "isinf", "logical_and", "logical_or",
)  # fmt: skip


class Shadowed(np.ndarray[Any, Any]):
    """shadow: unsigned integers, or booleans of booleans; read: where what is unwritten came from."""

    shadow: Array
    read: Read

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        values = [plain(one) for one in inputs]
        result = getattr(ufunc, method)(*values, **options)
        if method != "__call__" or options.get("out") is not None or not isinstance(result, np.ndarray):
            return result
        shadow = _of_result(ufunc.__name__, values, [shadow_of(one) for one in inputs], result.dtype)
        read = _read_of(inputs)
        if read is not None and ufunc.__name__ in (*SUMS, *WHOLE):
            read = read.computed()
        return result if shadow is None else shadowed(result, shadow, read)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        result = function(*[plain(one) for one in inputs], **options)
        if function is not np.where or len(inputs) != 3:
            return result
        condition, yes, no = (np.asarray(plain(one)) for one in inputs)
        shadows = [_fitted(shadow_of(one), result.dtype) for one in inputs[1:]]
        if yes.dtype != result.dtype or no.dtype != result.dtype:
            return result
        bits = _bits_of(result.dtype)
        found = shadow_bits.of_choice(
            condition, yes.view(bits), no.view(bits), shadow_of(inputs[0]).astype(bool), *shadows
        )
        return shadowed(result, found, _read_of(inputs))

    def astype(self, dtype: Any, *given: Any, **options: Any) -> Any:
        """As an array's."""
        value = plain(self)
        result = value.astype(dtype, *given, **options)
        if value.dtype.kind in "iu" and result.dtype.kind in "iu":
            shadow = self.shadow.view(value.dtype).astype(result.dtype).view(_bits_of(result.dtype))
        else:
            shadow = _fitted(self.shadow != 0, result.dtype)
        return shadowed(result, shadow, self.read)

    def view(self, *given: Any) -> Any:  # type: ignore[override]
        """As an array's: the same bits as numbers of another kind."""
        result = plain(self).view(*given)
        return shadowed(result, self.shadow.view(_bits_of(result.dtype)), self.read)

    def __getitem__(self, index: Any) -> Any:
        result = plain(self)[plain(index)]
        return shadowed(result, self.shadow[plain(index)], self.read)


def plain(value: Any) -> Any:
    """The numbers alone."""
    return np.ndarray.view(value, np.ndarray) if isinstance(value, Shadowed) else value


def shadowed(value: Any, shadow: Array, read: Read | None) -> Any:
    """Numbers with a shadow; as they are where all of them were written."""
    if not isinstance(value, np.ndarray) or read is None or not shadow.any():
        return value
    made = np.ndarray.view(value, Shadowed)
    made.shadow, made.read = np.broadcast_to(shadow, value.shape), read
    return made


def shadow_of(value: Any) -> Array:
    """Of anything: nothing is set where it has none."""
    if isinstance(value, Shadowed):
        return value.shadow
    return np.zeros(1, _bits_of(np.asarray(value).dtype))


def _read_of(inputs: Any) -> Read | None:
    return next((one.read for one in inputs if isinstance(one, Shadowed)), None)


def _bits_of(dtype: Any) -> Any:
    return np.dtype(bool) if dtype.kind == "b" else np.dtype(f"u{dtype.itemsize}")


def _fitted(shadow: Array, dtype: Any) -> Array:
    """A shadow of something of this type; whole where it was another's."""
    bits = _bits_of(dtype)
    return shadow if shadow.dtype == bits else shadow_bits.whole(shadow, bits)


def _of_result(name: str, values: list[Any], shadows: list[Array], dtype: Any) -> Array | None:
    arrays = [np.asarray(value) for value in values]
    bits = _bits_of(dtype)
    is_integer = all(one.dtype.kind in "iub" for one in arrays)
    words = [one.view(_bits_of(one.dtype)) for one in arrays]
    by_bits: dict[str, Callable[..., Array]] = {
        "bitwise_and": shadow_bits.of_and,
        "bitwise_or": shadow_bits.of_or,
        "bitwise_xor": lambda a, b, shadow_a, shadow_b: shadow_a | shadow_b,
    }
    if name in by_bits and words[0].dtype == words[1].dtype == bits:
        return by_bits[name](*words, *shadows)
    if name in ("invert", "logical_not"):
        return _fitted(shadows[0], dtype)
    if name in COMPARES and is_integer and words[0].dtype == words[1].dtype:
        is_equality, is_signed = name in ("equal", "not_equal"), arrays[0].dtype.kind == "i"
        if arrays[0].dtype.kind == "b":
            return shadows[0] | shadows[1]
        (a, b), (shadow_a, shadow_b) = words, shadows
        return shadow_bits.of_comparison(a, b, shadow_a, shadow_b, is_equality, is_signed)
    if name in ("left_shift", "right_shift") and arrays[0].dtype == dtype:
        moved = getattr(np, name)(shadows[0].view(dtype), arrays[1]).view(bits)
        return np.asarray(moved | shadow_bits.whole(shadows[1], bits))
    if name in SUMS and is_integer and dtype.kind != "b":
        return shadow_bits.upwards(_either([_fitted(one, dtype) for one in shadows]))
    if name in (*SUMS, *WHOLE, *COMPARES):
        return shadow_bits.whole(_either([one != 0 for one in shadows]), bits)
    return None


def _either(shadows: list[Array]) -> Array:
    found = shadows[0]
    for one in shadows[1:]:
        found = found | one
    return found
