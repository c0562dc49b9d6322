"""Habits of programs written for PyTorch: in-place activations, attributes of containers, files, libraries' imports."""

from __future__ import annotations

import collections
import hashlib
import importlib
import socket
import sys

import numpy as np
import pytest

import hcq
import hcq.nn.functional as F
from hcq import Tensor, UsageError, nn

IN_PLACE = [
    lambda x: F.relu(x, True),
    lambda x: F.leaky_relu(x, 0.2, inplace=True),
    lambda x: F.threshold(x, 0.0, 5.0, True),
    lambda x: F.dropout(x, 1.0, True, True),
    nn.Hardswish(True),
    nn.ELU(0.5, inplace=True),
    nn.Dropout(1.0, inplace=True),
    nn.RReLU(0.25, 0.25, inplace=True),
]


@pytest.mark.parametrize("function", IN_PLACE, ids=range(len(IN_PLACE)))
@pytest.mark.torch
def test_what_is_asked_for_in_place_is_seen_in_the_tensor_that_was_given(function):
    torch = pytest.importorskip("torch")
    w, theirs = (make([-1.0, 2.0, -4.0], requires_grad=True) for make in (hcq.tensor, torch.tensor))
    x = w * 1.5
    y = function(x)
    assert y is x
    (y * x).sum().backward()
    names = {"F": torch.nn.functional, "nn": torch.nn}
    if isinstance(function, nn.Module):
        other = getattr(torch.nn, type(function).__name__)(**vars(function)).train()
    else:
        other = type(function)(function.__code__, names)
    z = theirs * 1.5
    (other(z) * z).sum().backward()
    assert x.tolist() == pytest.approx(z.tolist(), rel=1e-4)
    assert w.grad.tolist() == pytest.approx(theirs.grad.tolist(), rel=1e-4)


def test_a_leaf_that_requires_a_gradient_is_not_changed_in_place_by_an_activation():
    with pytest.raises(UsageError, match=r"\[relu_\] a leaf of shape \(1,\) that requires a gradient"):
        nn.ReLU(inplace=True)(Tensor([1.0], requires_grad=True))


def test_a_module_that_becomes_an_attribute_of_a_container_is_a_part_of_it():
    class Block(nn.Sequential):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 3)
            self.second = nn.ReLU()
            self.number = 5

    block = Block()
    assert (
        len(block) == 2
        and block[0] is block.first
        and list(block.state_dict()) == ["first.weight", "first.bias"]
    )
    assert block(Tensor.ones(1, 2)).shape == (1, 3) and block.__getattr__("second") is block[1]
    parts = nn.ModuleList([nn.ReLU(), None])
    parts.norm = nn.LayerNorm(2)
    assert len(parts) == 3 and parts[1] is None and list(parts.state_dict()) == ["norm.weight", "norm.bias"]
    nested = nn.ParameterList([nn.ParameterList([Tensor.ones(2)]), Tensor.ones(1)])
    assert list(nested.state_dict()) == ["1", "0.0"] and "(1): Parameter containing" in repr(nested)


def test_a_frozen_parameter_may_be_a_view():
    frozen = nn.Parameter(Tensor.ones(2, 3).T, requires_grad=False)
    trained = nn.Parameter(Tensor.ones(2))
    optimizer = hcq.optim.SGD([frozen, trained], lr=0.5)
    (trained * frozen.sum()).sum().backward()
    optimizer.step()
    assert trained.tolist() == [-2.0, -2.0] and frozen.sum().item() == 6.0


def test_functions_take_pytorchs_words():
    x = Tensor.ones(1, 2)
    assert F.pad(x, pad=(1, 0)).shape == (1, 3) and F.dropout(input=x, p=0.0).shape == (1, 2)
    assert F.cosine_embedding_loss(input1=x, input2=x, target=Tensor.ones(1)).item() == 0.0
    assert F.triplet_margin_loss(anchor=x, positive=x, negative=x, margin=2.0).item() == 2.0


def checkpoint():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = hcq.optim.Adam(net.parameters(), lr=0.1)
    net(Tensor.ones(4, 2)).square().sum().backward()
    optimizer.step()
    shared = Tensor([1.0, 2.0])
    return {
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "settings": {"sizes": [1, 2], "words": ("é", None, True, 2**40, -5, 0.5)},
        "twice": [shared, shared],
        "few": [
            Tensor([1, 2], dtype=hcq.uint16),
            Tensor([1.5], dtype=hcq.bfloat16),
            nn.Parameter(Tensor([1.0])),
        ],
    }


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path):
    saved = checkpoint()
    with open(tmp_path / "last.tar", "wb") as file:
        hcq.save(saved, file)
    found = hcq.load(tmp_path / "last.tar", map_location="cpu", weights_only=True)
    assert found["epoch"] == 3 and found["settings"] == saved["settings"] and "epoch" in found
    assert found.get("nothing") is None and found["model.0.weight"].shape == (3, 2)
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = hcq.optim.Adam(net.parameters(), lr=0.5)
    net.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 0.1 and hcq.equal(net[0].weight, saved["model"]["0.weight"])
    assert hcq.load(tmp_path / "last.tar", map_location=lambda storage, place: storage).device == "CPU"


@pytest.mark.torch
def test_pytorch_reads_a_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")
    saved = checkpoint()
    hcq.save(saved, tmp_path / "last.pt")
    found = torch.load(tmp_path / "last.pt", weights_only=True)
    assert found["settings"] == saved["settings"] and found["few"][0].dtype is torch.uint16
    assert found["few"][1].item() == 1.5 and isinstance(found["few"][2], torch.nn.Parameter)
    assert found["twice"][0].data_ptr() == found["twice"][1].data_ptr()
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    net.load_state_dict(found["model"])
    torch.optim.Adam(net.parameters()).load_state_dict(found["optimizer"])
    assert net[0].weight.tolist() == saved["model"]["0.weight"].tolist()


def test_what_a_file_of_pytorch_does_not_hold_is_named_with_its_place(tmp_path):
    with pytest.raises(UsageError, match=r"\['net'\] is Linear: save its state_dict\(\)"):
        hcq.save({"net": nn.Linear(1, 1)}, tmp_path / "x.pt")
    with pytest.raises(UsageError, match=r"\['a'\]\[1\] is <object"):
        hcq.save({"a": [1, object()]}, tmp_path / "x.pt")
    with pytest.raises(UsageError, match="complex64"):
        hcq.save([Tensor([1j])], tmp_path / "x.pt")
    with pytest.raises(UsageError, match="map_location names"):
        hcq.load(tmp_path / "x.pt", map_location={"cuda:0": "cpu", "cuda:1": "cpu:1"})
    assert not (tmp_path / "x.pt").exists()


def test_weights_are_fetched_once_and_checked(tmp_path):
    hcq.save({"w": Tensor([1.0])}, tmp_path / "w.pt")
    digest = hashlib.sha256((tmp_path / "w.pt").read_bytes()).hexdigest()[:8]
    (tmp_path / "w.pt").rename(tmp_path / f"w-{digest}.pt")
    address = (tmp_path / f"w-{digest}.pt").as_uri()
    for _ in range(2):
        state = hcq.torch.hub.load_state_dict_from_url(
            address, tmp_path / "kept", map_location="cpu", check_hash=True
        )
        assert state["w"].tolist() == [1.0]
        if (tmp_path / f"w-{digest}.pt").exists():
            (tmp_path / f"w-{digest}.pt").rename(tmp_path / "w-00000000.pt")  # not asked for again
    with pytest.raises(UsageError, match=f"its SHA-256 begins with {digest}"):
        hcq.torch.hub.load_state_dict_from_url(
            (tmp_path / "w-00000000.pt").as_uri(), tmp_path / "kept", check_hash=True
        )
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [f"w-{digest}.pt"]


def test_samplers_and_files_of_the_data_package_have_their_names():
    from hcq.torch.utils.data.dataloader import DataLoader
    from hcq.torch.utils.data.dataset import Dataset
    from hcq.torch.utils.data.sampler import SubsetRandomSampler, WeightedRandomSampler

    assert DataLoader is hcq.torch.utils.data.DataLoader and Dataset is hcq.torch.utils.data.Dataset
    assert sorted(SubsetRandomSampler([5, 7])) == [5, 7]
    drawn = list(WeightedRandomSampler([0.0, 1.0, 3.0], 400))
    assert set(drawn) == {1, 2} and 240 < drawn.count(2) < 350
    assert sorted(WeightedRandomSampler([1.0, 1.0, 1.0], 3, replacement=False)) == [0, 1, 2]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hcq.torch.utils.data.nothing")


def test_assert_close_names_what_differs():
    x = Tensor([1.0, 2.0])
    hcq.torch.testing.assert_close({"a": [x, 1.0]}, {"a": [x + 1e-7, 1.0]})
    for other, words in (
        (x + 1, r"\['a'\] 2 of 2 elements differ, by up to 1"),
        (x.double(), "dtypes float32 and float64"),
        (Tensor([1.0]), r"shapes \(2,\) and \(1,\)"),
    ):
        with pytest.raises(AssertionError, match=words):
            hcq.torch.testing.assert_close({"a": x}, {"a": other})
    with pytest.raises(AssertionError, match="1 of 1"):
        hcq.torch.testing.assert_close(Tensor([float("nan")]), Tensor([float("nan")]))
    hcq.torch.testing.assert_close(Tensor([float("nan")]), Tensor([float("nan")]), equal_nan=True)


def test_libraries_of_models_find_what_they_import():
    from hcq.torch.fx import wrap
    from hcq.torch.jit import _overload_method

    assert wrap("name") == "name" and _overload_method(len) is len and "hcq.torch.fx" in sys.modules
    with pytest.raises(UsageError, match="no graph of Python is made"):
        hcq.torch.fx.symbolic_trace(nn.ReLU())


def test_weights_changed_by_hand_are_trained_on_whatever_is_read_between():
    w, v = Tensor([1.0, 2.0], requires_grad=True), Tensor([0.5, -1.0], requires_grad=True)
    x, losses = Tensor([0.3, 0.7]), []
    for _ in range(3):
        loss = ((w * x).tanh() * v).sum() ** 2
        losses.append(loss.item())  # read before backward(), while what was written to w and v is pending
        loss.backward()
        with hcq.no_grad():
            w -= 0.5 * w.grad
            v.data.add_(-0.5 * v.grad)
        w.grad = v.grad = None
    a, b, c = np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([0.3, 0.7])
    for seen in losses:
        inner = np.tanh(a * c)
        value = (inner * b).sum()
        assert seen == pytest.approx(value**2, rel=1e-5)
        a, b = a - value * b * (1 - inner**2) * c, b - value * inner


def test_a_gradient_through_memory_from_before_a_write_is_refused_not_wrong():
    w = Tensor([1.0, 2.0], requires_grad=True)
    before = w * w
    with hcq.no_grad():
        w.mul_(3.0)
    both = (before * w).sum()
    assert both.item() == 27.0
    with pytest.raises(UsageError, match=r"\[(gradient|backward)\]"):
        both.backward()


def test_sizes_indices_and_numbers_are_taken_as_programs_give_them():
    assert hcq.randint(5, (2, 3)).shape == (2, 3) and hcq.randint(5, 6, (1,)).tolist() == [5]
    assert (
        hcq.tensor(collections.deque([1.0, 2.0])).tolist() == [1.0, 2.0] == hcq.tensor(range(1, 3)).tolist()
    )
    x = Tensor.zeros(2, 3)
    x[range(2), hcq.tensor([2, 0])] = 1.0
    assert x.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert set(F.dropout2d(Tensor.ones(8, 8), 0.5).flatten().tolist()) == {0.0, 2.0}


def test_what_only_asks_for_other_processes_runs_in_one():
    assert hcq.distributed.is_available() and hcq.distributed.get_world_size() == 1
    if not hcq.distributed.is_initialized():
        assert hcq.distributed.get_rank() == 0
    with pytest.raises(UsageError, match=r"hcq\.distributed\.DataParallel"):
        hcq.torch.nn.parallel.DistributedDataParallel(nn.Linear(1, 1))


def test_types_are_named_as_older_programs_name_them():
    x = Tensor([1.5], device="CPU")
    assert x.type(hcq.torch.LongTensor).tolist() == [1] and x.type("torch.DoubleTensor").dtype is hcq.float64
    assert x.type() == "torch.FloatTensor" and x.type(hcq.int8).type() == "torch.CharTensor"
    for wrong in ("torch.Nothing", 3, [1]):
        with pytest.raises(UsageError, match="give a dtype, or a constructor"):
            x.type(wrong)
    y = Tensor([0.25, 0.75])
    assert F.mse_loss(y, y + 1, size_average=False).item() == 2.0
    assert (
        F.mse_loss(y, y + 1, reduce=False).shape == (2,) and F.l1_loss(y, y, size_average=True).item() == 0.0
    )


def test_what_is_behind_a_detach_may_have_been_computed_from_weights_that_moved_since():
    maker, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [hcq.optim.SGD(net.parameters(), lr=0.1) for net in (maker, judge)]
    made = maker(Tensor.ones(3, 2))
    judge(made).mean().backward()
    optimizers[0].step()  # the maker's weights are written
    optimizers[1].zero_grad()
    loss = judge(made.detach()).square().mean()
    loss.item()
    loss.backward()
    optimizers[1].step()
    y = judge(made.detach()).numpy()
    assert judge.bias.grad.item() != 0.0 and np.isfinite(y).all()
    with pytest.raises(UsageError, match="was written in place since"):
        judge(made).mean().backward()


def test_sizes_make_a_tensor_where_older_programs_give_them():
    weight = nn.Parameter(Tensor(2, 3))
    assert weight.shape == (2, 3) and weight.requires_grad and weight.dtype is hcq.float32
    assert (
        Tensor(2, 3, 4).shape == (2, 3, 4)
        and Tensor(1, 2, 3, 4).shape == (1, 2, 3, 4)
        and hcq.tensor(5).shape == ()
    )
    assert weight.new(4).shape == (4,) and hcq.tensor([1]).new([2.9]).tolist() == [2]
    assert hcq.float64.is_floating_point and not hcq.uint8.is_signed and not hcq.int8.is_floating_point


def test_an_address_where_nobody_answers_is_refused_with_the_file_that_was_to_be(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/weights.pt"
        with pytest.raises(
            hcq.UsageError, match=r"\[download_url_to_file\] http.*weights\.pt: .*by hand to .*kept"
        ):
            hcq.torch.hub.download_url_to_file(url, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
