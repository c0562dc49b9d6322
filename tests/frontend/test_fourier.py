"""Fourier transforms are NumPy's to the accuracy of their dtype, and obey their laws, gradients included."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes
from hcq.errors import UsageError
from hcq.frontend.more.fourier import tables
from hcq.frontend.more.fourier.planes import stages_of

RNG = np.random.default_rng(5)
SIZES = (1, 2, 9, 64, 67, 96, 134, 210)  # one stage, several, a large prime factor, odd and even


def signal(*shape):
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype("complex64")


def close(got, expected, tolerance=5e-7):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max(initial=0.0) <= tolerance * max(
        1e-30, np.abs(expected).max(initial=1e-30)
    )


@pytest.mark.parametrize("size", SIZES)
def test_every_transform_of_every_size_gives_what_numpy_gives(size):
    z = signal(2, size)
    x = z.real.copy()
    wide = z.astype("complex128")
    half = Tensor(z[:, : size // 2 + 1])
    results = {
        "fft": (hcq.torch.fft.fft(Tensor(z)), np.fft.fft(wide)),
        "ifft": (hcq.torch.fft.ifft(Tensor(z), norm="ortho"), np.fft.ifft(wide, norm="ortho")),
        "rfft": (hcq.torch.fft.rfft(Tensor(x)), np.fft.rfft(wide.real)),
        "irfft": (hcq.torch.fft.irfft(half, n=size), np.fft.irfft(wide[:, : size // 2 + 1], n=size)),
        "hfft": (hcq.torch.fft.hfft(half, n=size), np.fft.hfft(wide[:, : size // 2 + 1], n=size)),
        "ihfft": (hcq.torch.fft.ihfft(Tensor(x)), np.fft.ihfft(wide.real)),
    }
    first, *others = [result for result, _ in results.values()]
    first.realize(*others)
    for result, expected in results.values():
        close(result.numpy(), expected)


def test_several_axes_sizes_and_norms_are_numpys():
    z = signal(3, 6, 10)
    x = z.real.copy()
    for norm in ("backward", "ortho", "forward"):
        close(
            hcq.torch.fft.fft2(Tensor(z), s=(8, 5), dim=(0, 2), norm=norm).numpy(),
            np.fft.fft2(z, (8, 5), (0, 2), norm),
        )
        close(hcq.torch.fft.irfftn(Tensor(z), norm=norm).numpy(), np.fft.irfftn(z, norm=norm))
    close(hcq.torch.fft.rfftn(Tensor(x), s=(4, 12)).numpy(), np.fft.rfftn(x, (4, 12), (1, 2)))
    close(hcq.torch.fft.ifftn(Tensor(z)).numpy(), np.fft.ifftn(z))
    close(hcq.torch.fft.fft(Tensor(z), n=7, dim=0).numpy(), np.fft.fft(z, 7, 0))
    close(hcq.torch.fft.fft(hcq.tensor([1, 2, 3])).numpy(), np.fft.fft([1, 2, 3]))
    assert hcq.torch.fft.fft(Tensor(x.astype("float64"))).dtype is dtypes.complex128


def test_float64_is_transformed_in_float64():
    x = RNG.normal(size=134)
    close(hcq.torch.fft.rfft(Tensor(x)).numpy(), np.fft.rfft(x), 1e-14)


def test_frequencies_and_shifts_are_numpys():
    for size in (1, 4, 7):
        close(hcq.torch.fft.fftfreq(size, 0.5).numpy(), np.fft.fftfreq(size, 0.5))
        close(hcq.torch.fft.rfftfreq(size, 2.0).numpy(), np.fft.rfftfreq(size, 2.0))
    x = np.arange(30, dtype="float32").reshape(5, 6)
    for dim in (None, 1, (0, -1)):
        assert np.array_equal(hcq.torch.fft.fftshift(Tensor(x), dim).numpy(), np.fft.fftshift(x, dim))
        assert np.array_equal(hcq.torch.fft.ifftshift(Tensor(x), dim).numpy(), np.fft.ifftshift(x, dim))


def test_the_laws_of_the_transform_hold():
    a, b = signal(96), signal(96)
    spectrum, other = hcq.torch.fft.fft(Tensor(a)), hcq.torch.fft.fft(Tensor(b))
    close(hcq.torch.fft.ifft(spectrum).numpy(), a)
    close((spectrum.abs() ** 2).sum().item() / 96, (np.abs(a) ** 2).sum(), 1e-6)  # Parseval
    close(hcq.torch.fft.fft(Tensor(a) * 2j + Tensor(b)).numpy(), (spectrum * 2j + other).numpy())
    convolved = np.array([sum(a[j] * b[(k - j) % 96] for j in range(96)) for k in range(96)])
    close(hcq.torch.fft.ifft(spectrum * other).numpy(), convolved, 1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("size", [10, 134])
def test_gradients_of_transforms_are_those_of_pytorch(size):
    torch = pytest.importorskip("torch")
    z, weights = signal(2, size), signal(2, size)

    def loss(library, z, w):
        spectrum = library.fft.fft(z) * w
        back = library.fft.irfft(spectrum, n=size - 1) ** 2
        return back.sum() + library.fft.rfft(z.real).abs().sum()

    ours, theirs = Tensor(z, requires_grad=True), torch.tensor(z, requires_grad=True)
    loss(hcq.torch, ours, Tensor(weights)).backward()
    loss(torch, theirs, torch.tensor(weights)).backward()
    close(ours.grad.numpy(), theirs.grad.numpy(), 2e-6)


def test_stages_are_few_and_equal_and_their_product_is_the_size():
    assert stages_of(1024) == (32, 32) and stages_of(64) == (64,) and stages_of(1009) == ()
    for size in range(1, 3000):
        stages = stages_of(size)
        assert not stages or (np.prod(stages) == size and max(stages) <= 64)


def test_a_transform_inside_a_jit_uses_tables_that_are_not_part_of_it():
    tables._forget()

    @hcq.jit
    def powers(x):
        return (hcq.torch.fft.rfft(x).abs() ** 2).realize(), hcq.torch.fft.fft(x)

    for _ in range(4):
        x = RNG.normal(size=(2, 96)).astype("float32")
        found, whole = powers(Tensor(x))
        close(found.numpy(), np.abs(np.fft.rfft(x)) ** 2, 1e-6)
        close(whole.numpy(), np.fft.fft(x))
    assert powers.kernels > 0


def test_tables_are_kept_once_and_not_without_end(monkeypatch):
    tables._forget()
    hcq.torch.fft.fft(Tensor(signal(96))).realize()
    kept = len(tables._kept)
    hcq.torch.fft.fft(Tensor(signal(3, 96))).realize()
    assert len(tables._kept) == kept and tables._bytes == sum(table.nbytes for table in tables._kept.values())
    monkeypatch.setattr(tables, "MAX_BYTES", 0)
    close(hcq.torch.fft.fft(Tensor(np.ones(128, "float32"))).numpy()[0], 128)
    assert len(tables._kept) == 1


WRONG = {
    "n=0": lambda x: hcq.torch.fft.fft(x, n=0),
    "norm": lambda x: hcq.torch.fft.fft(x, norm="half"),
    "dim": lambda x: hcq.torch.fft.fft(x, dim=2),
    "twice": lambda x: hcq.torch.fft.fftn(x, dim=(0, -2)),
    "s and dim": lambda x: hcq.torch.fft.fft2(x, s=(4,)),
    "complex rfft": lambda x: hcq.torch.fft.rfft(x * 1j),
    "half": lambda x: hcq.torch.fft.fft(x.half()),
    "no axis": lambda x: hcq.torch.fft.irfftn(x, dim=()),
    "no tensor": lambda x: hcq.torch.fft.fftn([1.0]),
    "irfft of one": lambda x: hcq.torch.fft.irfft(x[:, :1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_of_a_transform_is_refused_and_says_what_to_do(name):
    with pytest.raises(UsageError, match=r"^\[i?r?f?h?fft[2n]?\]"):
        WRONG[name](Tensor(signal(2, 4).real.copy()))
