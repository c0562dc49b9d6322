"""Tables: the numbers that transforms of one size multiply with, made once and kept on the device.

In       a size, a direction, a dtype, a device
Out      realized tensors: matrices of small transforms, angles between stages, chirps
Changes  device memory: up to MAX_BYTES of tables are kept, the ones used last
Next     planes.py (who multiplies with them)

Angles are multiples of the n-th part of a turn, reduced as integers; their sines and cosines are float64, rounded once.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.run.realize import unwatched
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType

MAX_BYTES = 1 << 28
_kept: OrderedDict[tuple[Any, ...], Tensor] = OrderedDict()
_bytes = 0


def kept(name: str, device: str, dtype: DType, *numbers: Any, make: Callable[..., Any]) -> Tensor:
    """The table of that name, device and dtype for these numbers; `make(*numbers)` is an array of float64."""
    global _bytes
    key = (name, device, dtype, *numbers)
    table = _kept.get(key)
    if table is not None:
        _kept.move_to_end(key)
        return table
    with unwatched():  # not part of what a jit records: it is there in the next call
        table = Tensor(make(*numbers).astype(dtype.name), device)
    _kept[key] = table
    _bytes += table.nbytes
    while _bytes > MAX_BYTES and len(_kept) > 1:
        _bytes -= _kept.popitem(last=False)[1].nbytes
    return table


def _forget(device: str = "") -> None:
    """A device is gone, and with it its memory; "" is all of them."""
    global _bytes
    for key in [key for key in list(_kept) if not device or device in devices.members(key[1])]:
        _bytes -= _kept.pop(key).nbytes


devices.on_close.append(_forget)
os.register_at_fork(after_in_child=_forget)


def turns(whole: Any, of: int, sign: int) -> tuple[Any, Any]:
    """Cosines and sines of sign * whole / of turns, for an array of integers."""
    import numpy as np

    angle = (2.0 * np.pi / of) * (whole % of)
    return np.cos(angle), sign * np.sin(angle)


def matrix(size: int, sign: int, scale: float, is_real: bool) -> Any:
    """The transform of that size of planes: (2 size, 2 size), or of real numbers: (2 size, size)."""
    import numpy as np

    places = np.arange(size)
    cosine, sine = turns(np.outer(places, places), size, sign)
    columns = (
        [np.vstack([cosine, sine])] if is_real else [np.vstack([cosine, sine]), np.vstack([-sine, cosine])]
    )
    return np.hstack(columns) * scale


def to_real_matrix(size: int, sign: int, scale: float) -> Any:
    """From the planes of half a spectrum to the real numbers that have it: (size, 2 (size // 2 + 1))."""
    import numpy as np

    half = size // 2 + 1
    cosine, sine = turns(np.outer(np.arange(size), np.arange(half)), size, sign)
    twice = np.full(half, 2.0)  # what is not said of the other half
    twice[0] = 1.0
    if size % 2 == 0:
        twice[-1] = 1.0
    return np.hstack([cosine * twice, -sine * twice]) * scale


def between(size: int, rest: int, sign: int) -> Any:
    """The angles between a stage of `size` and the rest: cosines and sines for `times`, (2, 2, size, rest)."""
    import numpy as np

    whole = np.outer(np.arange(size, dtype=np.int64), np.arange(rest, dtype=np.int64))
    return factors(*turns(whole, size * rest, sign))


def factors(real: Any, imag: Any) -> Any:
    """What `times` takes, to multiply by those numbers: (2, 2, ...) by what of both planes, and of the other one."""
    import numpy as np

    return np.stack([np.stack([real, real]), np.stack([-imag, imag])])


def conjugate_factors(real: Any, imag: Any) -> Any:
    """What `times` takes, to multiply conjugates by those numbers."""
    import numpy as np

    return np.stack([np.stack([real, -real]), np.stack([imag, imag])])


def unpacking(size: int, sign: int) -> Any:
    """From the transform of size / 2 pairs to that of `size` real numbers: (2, 2, 2, size / 2 + 1)."""
    import numpy as np

    cosine, sine = turns(np.arange(size // 2 + 1), size, sign)
    ahead = factors((1.0 + sine) / 2.0, -cosine / 2.0)  # (1 - i w) / 2
    back = conjugate_factors((1.0 - sine) / 2.0, cosine / 2.0)  # (1 + i w) / 2, of conjugates
    return np.stack([ahead, back])


def packing(size: int, sign: int) -> Any:
    """From half a spectrum of `size` real numbers to that of size / 2 pairs: (2, 2, 2, size / 2)."""
    import numpy as np

    cosine, sine = turns(np.arange(size // 2), size, sign)
    ahead = factors(1.0 - sine, cosine)  # 1 + i w
    back = conjugate_factors(1.0 + sine, -cosine)  # 1 - i w, of conjugates
    table = np.stack([ahead, back])
    table[:, 0, 1, 0] = (
        0.0  # the first and the last number of the spectrum are real: imaginary parts do not count
    )
    table[:, 1, 0, 0] = 0.0
    return table


def chirp(size: int, sign: int, scale: float) -> Any:
    """Angles that grow with the square of the place: (2, 2, size)."""
    import numpy as np

    places = np.arange(size, dtype=np.int64)
    cosine, sine = turns(places * places, 2 * size, sign)
    return factors(cosine * scale, sine * scale)


def chirp_spectrum(size: int, room: int, sign: int) -> Any:
    """The spectrum, of `room` places, of the chirp the other way round, by `room`: (2, 2, room)."""
    import numpy as np

    places = np.arange(size, dtype=np.int64)
    cosine, sine = turns(places * places, 2 * size, -sign)
    line = np.zeros(room, "complex128")
    line[:size] = cosine + 1j * sine
    line[room - size + 1 :] = line[1:size][::-1]
    spectrum = np.fft.fft(line) / room
    return factors(spectrum.real, spectrum.imag)
