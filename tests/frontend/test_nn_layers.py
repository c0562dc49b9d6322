"""Every layer and loss beside PyTorch's of the same name: weights load both ways, and what comes out is the same."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor, UsageError, nn
from tests.frontend.layer_cases import CASES, LOSSES, Case

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def arrays(case: Case):
    rng = np.random.default_rng(5)
    return [
        rng.standard_normal(given).astype(np.float32) if isinstance(given, tuple) else given
        for given in case.inputs
    ]


def built(case: Case):
    """Ours and PyTorch's of the same weights, both in the same mode."""
    theirs_kwargs = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in case.kwargs.items()}
    ours_kwargs = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in case.kwargs.items()}
    torch.manual_seed(1)
    theirs = getattr(torch.nn, case.name)(*case.args, **theirs_kwargs)
    ours = getattr(nn, case.name)(*case.args, **ours_kwargs)
    for tensor in theirs.parameters():  # zeros and ones would hide which is which
        tensor.data = torch.randn_like(tensor) * 0.5
    if case.evaluated:
        theirs.eval()
        ours.eval()
    return ours, theirs


def flat(result):
    if isinstance(result, (tuple, list)):
        return [leaf for item in result for leaf in flat(item)]
    return [] if result is None else [result]


def close(ours, theirs, tolerance=3e-5):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=tolerance, atol=tolerance)


def compare(case: Case) -> None:
    ours, theirs = built(case)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    data = arrays(case)
    trained = [
        isinstance(given, tuple) or (at == 0 and given.dtype.kind == "f")
        for at, given in enumerate(case.inputs)
    ]
    mine = [Tensor(x, requires_grad=flag) for x, flag in zip(data, trained)]
    other = [torch.tensor(x, requires_grad=flag) for x, flag in zip(data, trained)]
    found, wanted = flat(ours(*[x.clone() for x in mine])), flat(theirs(*[x.clone() for x in other]))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        close(a, b)
    if not wanted[0].requires_grad:
        return
    weights = np.random.default_rng(6).standard_normal(wanted[0].shape).astype(np.float32)
    (found[0] * Tensor(weights)).sum().backward()
    (wanted[0] * torch.tensor(weights)).sum().backward()
    for a, b in [*zip(mine, other), *zip(ours.parameters(), theirs.parameters())]:
        if b.grad is not None and (b.grad != 0).any():
            close(a.grad, b.grad, 1e-4)
    for a, b in zip(ours.buffers(), theirs.buffers()):  # running statistics
        close(a, b)


FIRST = {case.name: case for case in reversed(CASES)}
QUICK = [FIRST[name] for name in ("Conv1d", "GRUCell", "MultiheadAttention", "EmbeddingBag", "KLDivLoss")]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_a_layer_with_pytorchs_weights_gives_its_result_and_gradients(case):
    compare(case)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case", [each for each in CASES if all(each is not quick for quick in QUICK)], ids=str
)
def test_every_layer_with_pytorchs_weights_gives_its_result_and_gradients(case):
    compare(case)


def test_every_module_prints_as_pytorchs_does_and_has_its_names():
    for case in CASES:
        if any(case is loss for loss in LOSSES):
            continue
        ours, theirs = built(case)
        assert repr(ours).replace("NonDynamicallyQuantizable", "") == repr(theirs).replace(
            "NonDynamicallyQuantizable", ""
        )
        assert [(n, tuple(t.shape)) for n, t in ours.state_dict().items()] == [
            (n, tuple(t.shape)) for n, t in theirs.state_dict().items()
        ]


def test_the_table_has_every_layer_and_loss():
    named = {case.name for case in CASES}
    others = set(
        "Module Sequential ModuleList ModuleDict ParameterList ParameterDict Parameter BatchNorm MaxUnpool1d "
        "MaxUnpool2d MaxUnpool3d TransformerEncoder TransformerDecoder Buffer UninitializedParameter "
        "UninitializedBuffer RNNBase RNNCellBase CrossMapLRN2d DataParallel".split()
    )
    classes = {name for name in nn.__all__ if isinstance(getattr(nn, name), type)}
    assert {name for name in classes - named if not name.startswith("Lazy")} == others


@pytest.mark.parametrize("layer", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_a_strided_convolution_has_no_same_padding_and_says_so_when_it_is_made(layer):
    with pytest.raises(UsageError, match="padding='same' with stride"):
        layer(4, 8, 3, stride=2, padding="same")
    assert layer(4, 8, 3, padding="same").padding == "same"


@pytest.mark.parametrize(
    ("name", "args"),
    [("MSELoss", (3,)), ("MaxPool2d", (2, None, 0, 1, "x")), ("LSTMCell", ("a", 3)), ("Conv1d", ("a", 3, 3)),
     ("TransformerDecoderLayer", ("a", 3)), ("LazyInstanceNorm2d", ("a",))],
)  # fmt: skip
def test_a_layer_that_shares_its_constructor_is_refused_by_its_own_name(name, args):
    with pytest.raises(UsageError, match=rf"^\[{name}\] "):
        getattr(nn, name)(*args)
