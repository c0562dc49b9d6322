"""Complex tensors compute what NumPy computes, differentiate as PyTorch does, and refuse what has no meaning."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes, nn
from hcq.errors import UsageError

RNG = np.random.default_rng(3)
Z = (RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))).astype("complex64")
W = (RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))).astype("complex64")
X = RNG.normal(size=(3, 4)).astype("float32")

OPERATORS = {
    "z + w": lambda z, w, x: z + w,
    "x - z": lambda z, w, x: x - z,
    "z - x": lambda z, w, x: z - x,
    "x * z": lambda z, w, x: x * z,
    "z / w": lambda z, w, x: z / w,
    "x / z": lambda z, w, x: x / z,
    "2 - z": lambda z, w, x: 2 - z,
    "1 / z": lambda z, w, x: 1 / z,
    "1j * x": lambda z, w, x: 1j * x,
    "x + 1j": lambda z, w, x: x + 1j,
    "x - 2j": lambda z, w, x: x - 2j,
    "x / 2j": lambda z, w, x: x / 2j,
    "1j / x": lambda z, w, x: 1j / x,
    "-z": lambda z, w, x: -z,
    "z ** 3": lambda z, w, x: z**3,
    "z ** -2": lambda z, w, x: z**-2,
    "z ** w": lambda z, w, x: z**w,
    "z ** x": lambda z, w, x: z**x,
    "abs": lambda z, w, x: abs(z),
    "z == w": lambda z, w, x: z == w,
    "x != z": lambda z, w, x: x != z,
    "z @ w.T": lambda z, w, x: z @ w.T,
    "x @ z.T": lambda z, w, x: x @ z.T,
    "z[1:, ::2]": lambda z, w, x: z[1:, ::2],
    "sum": lambda z, w, x: z.sum(1),
    "mean": lambda z, w, x: z.mean(),
    "prod": lambda z, w, x: z.prod(1),
    "reshape": lambda z, w, x: z.reshape(4, 3),
    "numpy scalar": lambda z, w, x: x * np.complex64(2 - 1j),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_complex_numbers_gives_what_numpy_gives(name):
    of = OPERATORS[name]
    expected = of(Z, W, X)
    got = of(Tensor(Z), Tensor(W), Tensor(X)).numpy()
    assert got.dtype == np.asarray(expected).dtype.newbyteorder("=")
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


FUNCTIONS = "exp expm1 log log1p log2 log10 sqrt sin cos tan sinh cosh tanh".split()
INVERSES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}


def test_functions_of_complex_numbers_give_what_numpy_gives():
    names = {**{name: name for name in FUNCTIONS}, **INVERSES}
    results = [getattr(Tensor(Z), name)() for name in names]
    results[0].realize(*results[1:])
    for got, name in zip(results, names.values()):
        np.testing.assert_allclose(got.numpy(), getattr(np, name)(Z), rtol=3e-6, atol=1e-6, err_msg=name)


def test_a_function_and_its_inverse_give_the_number_back():
    z = Tensor(Z)
    pairs = [
        z.exp().log(),
        z.sqrt().square(),
        z.asin().sin(),
        z.acosh().cosh(),
        z.atanh().tanh(),
        z.reciprocal().reciprocal(),
    ]
    for got in pairs:
        np.testing.assert_allclose(got.numpy(), Z, rtol=1e-4, atol=1e-5)


def test_division_neither_overflows_nor_underflows_where_its_result_is_a_number():
    big, small = Tensor([1e30 + 1e30j]), Tensor([1e-30 - 1e-30j])
    assert (big / big).tolist() == [1 + 0j]
    assert (small / small).tolist() == [1 + 0j]
    assert Tensor([3e30 + 4e30j]).abs().item() == pytest.approx(5e30)


def test_data_becomes_complex_by_what_is_in_it_and_by_the_dtype():
    assert hcq.tensor([1 + 2j, 3]).tolist() == [1 + 2j, 3 + 0j]
    assert Tensor([[1j], [2]]).shape == (2, 1)
    assert Tensor(1j).shape == () and Tensor(1j).item() == 1j
    assert Tensor(np.array([1j])).dtype is dtypes.complex128
    assert Tensor(np.complex64(2j)).dtype is dtypes.complex64
    assert Tensor([1.0, 2.0], dtype=dtypes.cfloat).tolist() == [1 + 0j, 2 + 0j]
    assert Tensor(Tensor([1.0]), dtype=dtypes.complex64).tolist() == [1 + 0j]
    assert hcq.tensor([1, 2]).cast(dtypes.complex64).dtype is dtypes.complex64
    assert Tensor.zeros(2, dtype=dtypes.complex64).tolist() == [0j, 0j]
    assert Tensor.full((2,), 1j).tolist() == [1j, 1j]
    assert Tensor.eye(2, dtype=hcq.complex64).tolist() == [[1 + 0j, 0j], [0j, 1 + 0j]]
    with pytest.raises(UsageError, match="complex numbers do not fit float32"):
        Tensor([1j], dtype=dtypes.float32)
    with pytest.raises(UsageError, match="ragged"):
        Tensor([[1j], [1j, 2]])


def test_parts_and_pairs_are_the_same_numbers():
    z = Tensor(Z)
    assert z.dtype is dtypes.complex64 and z.shape == (3, 4) and z.ndim == 2 and z.nbytes == 96
    assert z.is_complex() and not z.is_floating_point() and isinstance(z, Tensor) and hcq.is_tensor(z)
    assert np.array_equal(z.real.numpy(), Z.real) and np.array_equal(hcq.imag(z).numpy(), Z.imag)
    pairs = z.view_as_real()
    assert np.array_equal(pairs.numpy(), Z.view("float32").reshape(3, 4, 2))
    assert np.array_equal(hcq.view_as_complex(pairs).numpy(), Z)
    assert np.array_equal(hcq.complex(z.real, z.imag).numpy(), Z)
    np.testing.assert_allclose(hcq.polar(z.abs(), z.angle()).numpy(), Z, rtol=1e-5, atol=1e-6)
    assert np.array_equal(z.H.numpy(), Z.conj().T) and np.array_equal(hcq.conj(z).numpy(), Z.conj())
    assert z.item.__doc__ and complex(Tensor(2 - 1j)) == 2 - 1j
    assert z.tolist() == Z.tolist() and bytes(z.as_memoryview()) == Z.tobytes()
    assert "complex64" in repr(z)


def test_real_numbers_have_parts_too():
    x = Tensor([-2.0, 0.0, 3.0, float("nan")])
    assert x.real is x and x.conj() is x
    np.testing.assert_allclose(x.angle().numpy(), np.angle(x.numpy()))
    x.requires_grad_().angle().sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0] * 4
    with pytest.raises(UsageError, match="no imaginary parts"):
        x.imag  # noqa: B018


def test_real_and_complex_tensors_are_joined_chosen_and_multiplied_together():
    x, z = Tensor(X), Tensor(Z)
    assert np.array_equal(hcq.cat([x, z]).numpy(), np.concatenate([X, Z]))
    assert np.array_equal(hcq.stack([z, x], dim=1).numpy(), np.stack([Z, X], 1))
    assert np.array_equal(hcq.where(x > 0, z, x).numpy(), np.where(X > 0, Z, X))
    assert np.array_equal((x > 0).where(z, 1j).numpy(), np.where(X > 0, Z, np.complex64(1j)))
    np.testing.assert_allclose(hcq.einsum("ij,kj->ik", x, z).numpy(), np.einsum("ij,kj->ik", X, Z), rtol=1e-5)
    np.testing.assert_allclose(
        hcq.einsum("ij,ij,ij->j", z, x, z).numpy(), np.einsum("ij,ij,ij->j", Z, X, Z), rtol=1e-5
    )
    np.testing.assert_allclose(hcq.vdot(z[0], z[1]).item(), np.vdot(Z[0], Z[1]), rtol=1e-5)
    np.testing.assert_allclose(hcq.add(x, z, alpha=2).numpy(), X + 2 * Z, rtol=1e-6)
    np.testing.assert_allclose(z.var().item(), Z.var(ddof=1), rtol=1e-5)
    np.testing.assert_allclose(z.norm().item(), np.linalg.norm(Z), rtol=1e-5)
    scattered = z.scatter(1, hcq.tensor([[0], [1], [2]]), Tensor([[1j], [2j], [3.0]]))
    expected = Z.copy()
    np.put_along_axis(expected, np.array([[0], [1], [2]]), np.array([[1j], [2j], [3]], "complex64"), 1)
    assert np.array_equal(scattered.numpy(), expected)


def test_writing_changes_both_parts_and_nothing_made_before():
    z = Tensor(Z)
    before = z * 1.0
    z[0] = 1j
    z[1, 1] = 2.0
    expected = Z.copy()
    expected[0], expected[1, 1] = 1j, 2
    assert np.array_equal(z.numpy(), expected) and np.array_equal(before.numpy(), Z)
    z.assign(z.conj() * 1j).realize()
    assert np.array_equal(z.numpy(), expected.conj() * np.complex64(1j))
    twin = copy.deepcopy(z)
    twin.assign(0.0 * twin).realize()
    assert not np.array_equal(z.numpy(), twin.numpy())


REFUSED = {
    "relu": lambda x, z: z.relu(),
    "<": lambda x, z: z < z,
    "maximum": lambda x, z: x.maximum(z),
    "atan2": lambda x, z: x.atan2(z),
    "float": lambda x, z: z.float(),
    "scatter_add": lambda x, z: x.scatter_add(0, hcq.tensor([[0]]), z),
    "softmax": lambda x, z: hcq.softmax(z, 0),
    "sort": lambda x, z: z.sort(),
    "assign": lambda x, z: x.assign(z),
    "div": lambda x, z: z.div(z, rounding_mode="floor"),
    "cast": lambda x, z: z.cast(dtypes.float32),
    "backward": lambda x, z: z.requires_grad_().backward(),
    "linear": lambda x, z: hcq.nn.Linear(4, 2)(z).relu(),
    "gather": lambda x, z: x.gather(0, z),
}


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "linear"])
def test_what_has_no_meaning_for_complex_numbers_is_refused_by_name(name):
    with pytest.raises(UsageError, match=r"z\.real|z\.abs|complex|float32"):
        REFUSED[name](Tensor(X), Tensor(Z))


def test_every_public_method_of_real_tensors_computes_or_refuses_by_name_for_complex_ones():
    from hcq.frontend.more.complex.tensor import INHERITED, Complex
    from hcq.frontend.ops.late import groups

    refused = 0
    for name in sorted(
        {name for group in groups(Tensor) for name in vars(group) if not name.startswith("_")}
    ):
        member = Complex.__dict__.get(name)
        if getattr(member, "__doc__", "") == "Refused: it is not defined for complex numbers.":
            with pytest.raises(UsageError, match=rf"^\[{name}\] is not defined for a complex64 tensor"):
                getattr(Tensor([1j]), name)()
            refused += 1
        else:
            owners = [base for base in Complex.__mro__ if name in vars(base)]
            assert "complex" in owners[0].__module__ or name in INHERITED, name
    assert refused > 150


def losses(z, w):
    return [
        (z * w).abs().sum(),
        (z.exp() / w).imag.sum(),
        (z @ w.mT).real.sum(),
        (z.sqrt() * w.angle()).abs().mean(),
    ]


@pytest.mark.torch
def test_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    for place in range(4):
        z, w = Tensor(Z, requires_grad=True), Tensor(W, requires_grad=True)
        losses(z, w)[place].backward()
        tz, tw = torch.tensor(Z, requires_grad=True), torch.tensor(W, requires_grad=True)
        losses(tz, tw)[place].backward()
        for ours, theirs in ((z, tz), (w, tw)):
            np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_gradient_is_the_slope_by_the_real_and_by_the_imaginary_part():
    z = Tensor(Z.astype("complex128"), requires_grad=True)
    loss = lambda z: (z.sin() / (z + 2.0)).abs().sum() + (z.tanh() * z.conj()).real.sum()  # noqa: E731
    loss(z).backward()
    step = 1e-6
    for place in ((0, 0), (1, 2), (2, 3)):
        slopes = []
        for way in (step, 1j * step):
            moved = [Z.astype("complex128") for _ in range(2)]
            moved[0][place] += way
            moved[1][place] -= way
            slopes.append((loss(Tensor(moved[0])).item() - loss(Tensor(moved[1])).item()) / (2 * step))
        np.testing.assert_allclose(z.grad.numpy()[place], complex(*slopes), rtol=1e-5, atol=1e-7)


def test_gradients_flow_through_real_tensors_into_complex_ones_and_back():
    x, z = Tensor([2.0], requires_grad=True), Tensor([3 + 4j], requires_grad=True)
    (x * z).abs().sum().backward()
    assert x.grad.tolist() == [5.0] and x.grad.dtype is dtypes.float32
    np.testing.assert_allclose(z.grad.numpy(), [2 * (3 + 4j) / 5], rtol=1e-6)
    w = Tensor([1 + 1j], requires_grad=True)
    (w * w).backward(Tensor([1j]))
    assert w.grad.tolist() == [(2 * (1 + 1j)).conjugate() * 1j]
    z.grad = None
    assert z.grad is None and z.detach().requires_grad is False


def test_an_optimizer_moves_complex_parameters_as_pairs_of_real_ones():
    from hcq.frontend.optim import SGD

    z = Tensor([3 + 4j], requires_grad=True)
    step = SGD([z], lr=0.5)
    (z.abs() ** 2).sum().backward()
    step.step()
    np.testing.assert_allclose(z.numpy(), [0j], atol=1e-5)


def test_a_jit_takes_keeps_and_returns_complex_tensors():
    total = Tensor([0j, 0j]).realize()

    @hcq.jit
    def step(z, x):
        total.assign(total + z * x).realize()
        return {"product": z * x * 1j, "size": (z.abs(), [z.conj()])}

    expected = np.zeros(2, "complex64")
    for turn in range(5):
        z = np.array([turn + 1j, 2 - turn * 1j], "complex64")
        x = np.array([turn, 1.0], "float32")
        found = step(Tensor(z), Tensor(x))
        expected += z * x
        assert isinstance(found["product"], Tensor) and found["product"].is_complex()
        np.testing.assert_allclose(found["product"].numpy(), z * x * 1j)
        np.testing.assert_allclose(found["size"][0].numpy(), np.abs(z), rtol=1e-6)
        np.testing.assert_allclose(found["size"][1][0].numpy(), z.conj())
        np.testing.assert_allclose(total.numpy(), expected, rtol=1e-6)
    assert step.kernels > 0


def test_importing_hcq_and_computing_with_real_numbers_imports_nothing_of_complex_ones():
    import subprocess
    import sys

    code = (
        "import sys; from hcq import Tensor; (Tensor([1.0]) * 2.0).tolist(); "
        "assert not [name for name in sys.modules if 'frontend.more.complex' in name or 'fourier' in name]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_tensor_of_complex_numbers_is_made_complex_and_one_of_a_kind_of_its_own_is_real() -> None:
    class Tagged(Tensor):
        def __init__(self, data: object, tag: str) -> None:
            super().__init__(data)
            self.tag = tag

    assert [type(Tensor(data)).__name__ for data in (1j, [[1.0, 2j]], [1.0])] == [
        "Complex",
        "Complex",
        "Tensor",
    ]
    made = Tagged([1, 2], "x")
    assert (type(made), made.tag, made.dtype, made.tolist()) == (Tagged, "x", dtypes.float32, [1.0, 2.0])
    for kind in (lambda data: Tagged(data, "x"), nn.Parameter):
        with pytest.raises(
            UsageError, match=r"^\[(Tagged|Parameter)\] complex numbers: its numbers are real\."
        ):
            kind([1j])
