"""Exchange: memory is shared with other libraries, in both directions, for as long as one side holds it."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, dtypes, external_memory
from hcq.frontend.core import device as devices
from hcq.frontend.io import dlpack
from hcq.frontend.run.realize import storage_of

pytestmark = pytest.mark.skipif(hcq.tensor([1]).device != "CPU", reason="memory of the host")


def table() -> Tensor:
    return Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


VIEWS = {
    "all": lambda x: x,
    "transposed": lambda x: x.T,
    "a row": lambda x: x[1],
    "a part": lambda x: x[:, 1:],
    "steps": lambda x: x[:, ::2],
    "reshaped": lambda x: x.reshape(3, 2),
    "expanded": lambda x: x[None],
}


@pytest.mark.parametrize("view", VIEWS)
def test_an_array_is_in_the_memory_of_the_tensor(view):
    x = table()
    shown = VIEWS[view](x)
    array = np.asarray(shown)
    expected = VIEWS[view](np.arange(1, 7, dtype=np.float32).reshape(2, 3))
    np.testing.assert_array_equal(array, expected)
    array[...] = 9
    assert (x.numpy() == 9).sum() == expected.size
    x.zero_().realize().tolist()
    assert not array.any()
    before = x.tolist()
    np.array(shown)[...] = 1  # a copy
    assert x.tolist() == before and x.numpy().base is not x


def test_the_memory_outlives_either_side():
    x = table()
    array, other = np.asarray(x), np.from_dlpack(x.T)
    del x
    gc.collect()
    assert array.sum() == other.sum() == 21.0
    del other
    gc.collect()
    assert not dlpack._shown
    source = np.zeros(4096 + 16, np.float32)
    aligned = source[(-source.ctypes.data % 64) // 4 :][:4096]
    y = hcq.from_dlpack(aligned)
    aligned[:] = 2
    del source, aligned
    gc.collect()
    assert (y + 1).sum().item() == 3 * 4096


def test_a_capsule_that_nobody_takes_keeps_nothing():
    capsule = table().__dlpack__()
    assert len(dlpack._shown) == 1
    del capsule
    gc.collect()
    assert not dlpack._shown


def test_memory_that_work_still_uses_is_returned_when_the_work_is_done(monkeypatch):
    told = []
    kept = np.zeros(64, np.float32)
    device = devices.get("CPU")
    buffer = external_memory.lend(device, kept.ctypes.data, kept.nbytes, "lent", lambda: told.append(1))
    buffer.parent.last = device.timeline.submitted + 1
    del buffer
    gc.collect()
    assert not told
    (Tensor([1.0]) + 1).realize().tolist()
    while not device.timeline.has_reached(device.timeline.submitted):
        pass
    gc.collect()
    assert told == [1]
    buffer = external_memory.lend(device, kept.ctypes.data, kept.nbytes, "lent", lambda: told.append(2))
    monkeypatch.setattr(device.memory, "quarantined", {kept.ctypes.data})
    del buffer  # abandoned work may write there for ever
    gc.collect()
    assert told == [1]


def test_memory_in_a_known_buffer_is_a_view_of_it():
    x = Tensor.arange(64).float().realize()
    y = hcq.from_dlpack(np.asarray(x), copy=False)
    y.add_(1).realize().tolist()
    assert x.tolist() == list(range(1, 65))
    source = np.zeros(4096 + 16, np.float32)
    source = source[(-source.ctypes.data % 64) // 4 :][:4096]
    whole, part = hcq.from_dlpack(source, copy=False), hcq.from_dlpack(source[16:32], copy=False)
    assert storage_of(part).buffer.parent is storage_of(whole).buffer.parent
    del whole
    part.add_(3).realize().tolist()
    assert source.sum() == 48


def test_complex_numbers_are_given_and_taken_as_copies():
    z = Tensor([1 + 2j, 3j])
    assert np.from_dlpack(z).tolist() == np.asarray(z).tolist() == [1 + 2j, 3j]
    assert hcq.from_dlpack(np.array([1 + 2j])).tolist() == [1 + 2j]
    with pytest.raises(BufferError, match="their parts lie apart"):
        z.__dlpack__(copy=False)
    with pytest.raises(ValueError, match="complex64 on CPU is copied"):
        np.asarray(z, copy=False)
    with pytest.raises(ValueError, match=r"float32 on CPU to .*float64.* is copied"):
        np.asarray(table(), np.float64, copy=False)


def test_memory_is_not_shared_while_a_recording_is_made():
    for share in (lambda x: x.__dlpack__(), lambda x: hcq.from_dlpack(np.ones(3)), np.asarray):
        recorded = hcq.jit(share)
        with contextlib.suppress(UsageError):  # an array is nothing that jit returns
            recorded(Tensor([1.0]).realize())
        with pytest.raises(UsageError, match="is recorded: "):
            recorded(Tensor([1.0]).realize())


def test_equal_tensors_that_were_made_apart_do_not_share_with_others():
    x = table()
    y, z = x + 1, x + 1
    y.realize(z)
    np.asarray(y)[0, 0] = 77
    assert (y[0, 0].item(), z[0, 0].item()) == (77.0, 2.0)
    y, z = x + 1, (x + 1).T
    y.realize(z)
    np.asarray(y)[0, 0] = 77
    assert (y[0, 0].item(), z[0, 0].item()) == (77.0, 2.0)


def test_what_cannot_be_shared_is_copied_or_refused():
    frozen = np.arange(64.0)
    frozen.flags.writeable = False
    for array in (
        frozen,
        np.arange(12).reshape(3, 4)[:, ::2],
        np.arange(6)[::-1],
        np.arange(5, dtype=np.int16)[1:],
    ):
        made = hcq.from_dlpack(array)
        np.testing.assert_array_equal(made.numpy(), array)
        with pytest.raises(BufferError):
            hcq.from_dlpack(array, copy=False)
    np.testing.assert_array_equal(hcq.from_numpy(frozen).numpy(), frozen)
    assert hcq.from_dlpack(np.zeros((0, 3))).shape == (0, 3)
    assert hcq.from_dlpack(table()).tolist() == table().tolist()
    with pytest.raises(BufferError, match="requires a gradient"):
        np.from_dlpack(Tensor([1.0], requires_grad=True))
    with pytest.raises(UsageError, match="has no __dlpack__"):
        hcq.from_dlpack([1.0])
    with pytest.raises(BufferError, match="fp8e4m3 is not exchanged"):
        Tensor([1.0]).cast(dtypes.fp8e4m3).__dlpack__()


def test_what_is_a_tensor_or_an_array_already_is_taken_as_it_is():
    x = table()
    assert hcq.as_tensor(x) is x and hcq.asarray(x, dtype=dtypes.int64).dtype is dtypes.int64
    source = np.zeros(4096 + 16, np.float32)
    source = source[(-source.ctypes.data % 64) // 4 :][:4096]
    near = hcq.as_tensor(source)
    source[3] = 5
    assert near[3].item() == 5 and hcq.asarray(source, copy=True)[3].item() == 5
    assert hcq.asarray([1.0, 2.0], requires_grad=True).requires_grad and hcq.as_tensor(3).item() == 3
    assert hcq.as_tensor(np.float64(2.5)).item() == 2.5
    raw = np.arange(5, dtype=np.int16).tobytes()
    assert hcq.frombuffer(raw, dtype=dtypes.int16, count=2, offset=4).tolist() == [2, 3]
    with pytest.raises(UsageError, match="10 bytes, offset=1, count=-1 of int16"):
        hcq.frombuffer(raw, dtype=dtypes.int16, offset=1)


class OnGpu:
    def __dlpack_device__(self):
        return 2, 1

    def __dlpack__(self, **_):
        raise AssertionError("nobody asks for memory that nobody takes")


def test_memory_of_a_gpu_has_to_be_brought():
    with pytest.raises(UsageError, match=r"memory of CUDA:1: only memory of the host is taken. .*x.cpu\(\)"):
        hcq.from_dlpack(OnGpu())


def test_a_tensor_elsewhere_says_what_to_do():
    program = """
import numpy as np
from hcq import Tensor
x = Tensor([1.0], device="AMD")
assert np.asarray(x).tolist() == [1.0]
try: x.__dlpack__()
except BufferError as error: print(error)
"""
    environment = {"HCQ_EMULATE": "amd:gfx1100", "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert "Bring it: x.cpu()." in done.stdout, done.stderr


@pytest.mark.torch
@pytest.mark.thorough
def test_memory_goes_back_anywhere_and_never_hides_an_error():
    pytest.importorskip("torch")
    program = """
import numpy as np, torch, hcq, sys
from hcq.frontend.core import device
x = hcq.Tensor([1.0, 2.0])
device.kept = torch.kept = sys.kept = torch.from_dlpack(x)  # dropped while the process ends
device.taken = hcq.from_dlpack(torch.ones(64))
def lost():
    held = torch.from_dlpack(x + 4)
    raise KeyError("a")
try: lost()
except KeyError as error: print(error)
try: torch.from_dlpack(x + 5).reshape(3)
except RuntimeError as error: print(error)
try: np.from_dlpack(x.bfloat16())
except RuntimeError as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout.split("\n")[0] == "'a'" and "invalid for input" in done.stdout and "dtype" in done.stdout
    )


@pytest.mark.torch
def test_tensors_of_pytorch_share_memory_in_both_directions():
    torch = pytest.importorskip("torch")
    theirs = torch.arange(12.0).reshape(3, 4)
    ours = hcq.from_dlpack(theirs, copy=False)
    ours.mul_(2).realize().tolist()
    assert theirs[2, 3] == 22.0
    theirs[0, 0] = 5
    assert ours[0, 0].item() == 5.0
    assert hcq.from_dlpack(theirs.T, copy=False).tolist() == theirs.T.tolist()
    del theirs
    gc.collect()
    assert (ours + 1)[2, 3].item() == 23.0
    x = table()
    seen = torch.from_dlpack(x.T)
    seen[2, 0] = -1
    assert x[0, 2].item() == -1.0
    del x
    gc.collect()
    assert seen.tolist() == [[1.0, 4.0], [2.0, 5.0], [-1.0, 6.0]]
    for dtype in (
        torch.bfloat16,
        torch.float16,
        torch.int8,
        torch.uint8,
        torch.int64,
        torch.bool,
        torch.float64,
    ):
        made = hcq.from_dlpack(torch.ones(3, dtype=dtype))
        assert made.dtype.name == str(dtype).removeprefix("torch.") and torch.from_dlpack(made).dtype is dtype


def test_strides_are_counted_in_what_a_tensor_is_a_view_of():
    x = Tensor.arange(12).reshape(3, 4)
    assert x[1].as_strided((2, 2), (1, 2)).tolist() == [[4, 6], [5, 7]]
    assert x.as_strided((2, 2), (4, 1), 5).tolist() == [[5, 6], [9, 10]]
    assert x.as_strided((), (), 7).item() == 7
    assert x.as_strided_scatter(hcq.tensor([[-1, -2]]), (1, 2), (4, 5)).tolist()[0] == [-1, 1, 2, 3]
    with pytest.raises(UsageError, match="element 12 lies outside of the 12"):
        x.as_strided((2,), (1,), 11)
    assert Tensor.empty_strided((2, 3), (1, 2)).shape == (2, 3) == x.new_empty_strided((2, 3), (3, 1)).shape
    assert Tensor.empty_permuted((2, 3), (1, 0)).shape == (2, 3)
    assert x.clone().resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    with pytest.raises(UsageError, match="memory does not grow"):
        x.resize_(13)
