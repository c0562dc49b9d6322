"""Short-time transforms: spectra of windows that move over a signal, and the signal back from them.

In       signals (time) or (batch, time), or spectra (..., frequencies, frames); sizes and a window, as PyTorch has them
Out      complex spectra, lazy; signals, whose windows are divided out
Changes  `istft` outside of a jit reads whether the windows leave a gap
Next     fft.py (the transform of one window), ops/parts.py (who comes here)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.frontend.core.base import watcher
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.complex.pair import Pair
from hcq.frontend.more.fourier import fft
from hcq.frontend.tensor import Tensor

LEAST = 1e-11  # of the squares of windows that are over a place


def stft(
    x: Any, n_fft: int, hop_length: int | None, win_length: int | None, window: Any, center: bool, pad_mode: str,
    normalized: bool, onesided: bool | None, return_complex: bool | None, align_to_window: bool | None,
) -> Any:  # fmt: skip
    """The spectra of `stft`."""
    hop, window = _checked("stft", x, n_fft, hop_length, win_length, window)
    if x.ndim not in (1, 2):
        raise UsageError(f"[stft] shape {x.shape}: give a signal, (time) or (batch, time).")
    if align_to_window is not None and center:
        raise UsageError(
            "[stft] align_to_window with center=True: frames are centered already. Leave one out."
        )
    is_real = not isinstance(x, Pair) and not isinstance(window, Pair)
    if return_complex is None and is_real:
        raise UsageError("[stft] return_complex is not given. Use return_complex=True.")
    onesided = is_real if onesided is None else onesided
    if onesided and not is_real:
        raise UsageError("[stft] onesided=True: complex numbers have both sides. Leave it out.")
    lines = x if x.ndim == 2 else x.unsqueeze(0)
    if center:
        half = n_fft // 2
        if pad_mode == "reflect" and half >= x.shape[-1]:
            raise UsageError(
                f"[stft] n_fft={n_fft}: {half} are reflected of {x.shape[-1]} samples. Use a smaller one."
            )
        lines = lines.unsqueeze(1).pad((half, half), mode=pad_mode).squeeze(1)
    if not 0 < n_fft <= lines.shape[-1]:
        raise UsageError(f"[stft] n_fft={n_fft} of {lines.shape[-1]} samples: use 1 to as many as there are.")
    frames = lines.unfold(-1, n_fft, hop)
    frames = frames if window is None else frames * window
    norm = "ortho" if normalized else None
    spectra = fft.rfft(frames, norm=norm) if onesided else fft.fft(frames, norm=norm)
    spectra = spectra.transpose(-1, -2)
    spectra = spectra if x.ndim == 2 else spectra.squeeze(0)
    return spectra if return_complex is not False else spectra.view_as_real()


def istft(
    z: Any, n_fft: int, hop_length: int | None, win_length: int | None, window: Any, center: bool, normalized: bool,
    onesided: bool | None, length: int | None, return_complex: bool,
) -> Any:  # fmt: skip
    """The signals of `istft`."""
    hop, window = _checked("istft", z, n_fft, hop_length, win_length, window)
    if not isinstance(z, Pair) or z.ndim not in (2, 3):
        raise UsageError(
            f"[istft] {z.dtype.name} of shape {z.shape}: give complex spectra, (..., frequencies, frames)."
        )
    bins = z.shape[-2]
    onesided = bins != n_fft if onesided is None else onesided
    if bins != (n_fft // 2 + 1 if onesided else n_fft):
        raise UsageError(
            f"[istft] {bins} frequencies for n_fft={n_fft}, onesided={onesided}: they do not fit."
        )
    if return_complex and onesided:
        raise UsageError("[istft] return_complex=True of one side: its signal is real. Use onesided=False.")
    spectra = (z if z.ndim == 3 else z.unsqueeze(0)).transpose(-1, -2)
    norm = "ortho" if normalized else None
    if onesided:
        frames: Any = fft.irfft(spectra, n_fft, norm=norm)
    else:
        frames = fft.ifft(spectra, norm=norm)
        frames = frames if return_complex else frames.real
    count = frames.shape[1]
    if window is not None:
        frames, squares = frames * window, (window * window).reshape(1, 1, n_fft)
    else:
        squares = frames.real.ones_like()[:1, :1]
    whole = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    stop = start + length if length is not None else whole - start
    signal = overlapped(frames, hop)[:, start:stop]
    weights = overlapped(squares.expand(1, count, n_fft), hop)[:, start:stop]
    if watcher() is None and not bool((weights.abs() > LEAST).all()):
        raise UsageError(
            "[istft] the windows leave samples out. Use a smaller hop_length, or a window that is not 0 there."
        )
    signal = signal / weights
    if length is not None and signal.shape[1] < length:
        signal = signal.pad((0, length - signal.shape[1]))
    return signal if z.ndim == 3 else signal.squeeze(0)


def overlapped(frames: Any, hop: int) -> Any:
    """Frames added where they overlap: (batch, frames, n) -> (batch, n + hop * (frames - 1))."""
    batch, count, size = frames.shape
    pieces = math.ceil(size / hop)
    rows = frames.pad((0, pieces * hop - size)).reshape(batch, count, pieces, hop).transpose(1, 2)
    # piece j of each frame belongs j places later: rows that are one too long, read as if they were not
    width = count + pieces
    longer = rows.pad((0, 0, 0, pieces)).reshape(batch, pieces * width, hop)
    moved = longer[:, : pieces * (width - 1)].reshape(batch, pieces, width - 1, hop)
    return moved.sum(1).reshape(batch, (width - 1) * hop)[:, : size + hop * (count - 1)]


def _checked(
    call: str, x: Any, n_fft: int, hop: int | None, size: int | None, window: Any
) -> tuple[int, Any]:
    """The hop, and the window padded to n_fft in its middle, or None."""
    if not isinstance(x, Tensor) or not (x.dtype.is_float or x.dtype.is_complex):
        raise UsageError(f"[{call}] give floats or complex numbers.")
    hop = n_fft // 4 if hop is None else hop
    size = n_fft if size is None else size
    if hop < 1 or not 0 < size <= n_fft:
        raise UsageError(
            f"[{call}] n_fft={n_fft}, hop_length={hop}, win_length={size}: use 0 < win_length <= n_fft."
        )
    if window is None and size == n_fft:
        return hop, None
    if window is None:
        window = x.real.new_ones(size)
    if not isinstance(window, Tensor) or window.shape != (size,):
        raise UsageError(f"[{call}] the window has not win_length={size} numbers. Give a vector of as many.")
    left = (n_fft - size) // 2
    return hop, window.pad((left, n_fft - size - left))
