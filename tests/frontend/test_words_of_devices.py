"""What programs of PyTorch ask of devices: torch.device, torch.cuda, torch.accelerator, torch.backends."""

from __future__ import annotations

import pickle

import pytest

import hcq
import hcq.torch
from hcq import Tensor, UsageError, config
from hcq.frontend.core.device import Word
from hcq.frontend.torch import device_words


def test_a_device_is_a_word_that_answers_as_pytorchs_objects_do():
    device = hcq.torch.device("cpu")
    assert device == "CPU" == str(device) and device.type == "cpu" and device.index is None
    assert isinstance(Tensor([1.0], device=device).device, hcq.torch.device) and not isinstance(
        "CPU", hcq.torch.device
    )
    second = hcq.torch.device("cpu", 1)
    assert (second, second.type, second.index) == ("CPU:1", "cpu", 1)
    assert pickle.loads(pickle.dumps(device)).type == "cpu"
    assert isinstance(device, hcq.torch.device | None) and isinstance(None, hcq.torch.device | None)
    words = [Word(name) for name in ("NV", "AMD:2", "METAL", "TOY")]
    assert [(word.type, word.index) for word in words] == [("cuda", 0), ("cuda", 2), ("mps", 0), ("toy", 0)]


@pytest.mark.own_devices
def test_cuda_is_the_gpu_that_there_is(monkeypatch):
    opened = {"AMD", "AMD:1"}
    monkeypatch.setattr(device_words, "is_here", lambda kind: kind in opened)
    assert device_words.spelled("cuda") == "AMD" and device_words.spelled("cuda:1") == "AMD:1"
    assert device_words.spelled(1) == "AMD:1" and device_words.spelled("CPU:1") == "CPU:1"
    with pytest.raises(UsageError, match="this machine has no METAL device"):
        device_words.spelled("mps")
    opened.clear()
    with pytest.raises(UsageError, match=r'no NV or AMD device\. Use "CPU", or ask first'):
        device_words.spelled("cuda")


def test_the_gpu_of_hcq_device_is_meant_first(monkeypatch):
    monkeypatch.setattr(config, "current", lambda: type("Config", (), {"device": "amd:1"}))
    assert device_words.gpu() == "AMD"


def test_programs_that_ask_for_a_gpu_go_on_where_there_is_one_or_none():
    device = hcq.torch.device("cuda" if hcq.torch.cuda.is_available() else "cpu")
    assert hcq.zeros(2, device=device).device == device
    assert (
        hcq.torch.cuda.device_count() == hcq.torch.accelerator.device_count()
        or hcq.torch.backends.mps.is_available()
    )
    accelerator = hcq.torch.accelerator.current_accelerator()
    assert (accelerator is not None) == hcq.torch.accelerator.is_available()
    hcq.torch.accelerator.synchronize()
    hcq.torch.cuda.manual_seed_all(3)
    assert hcq.initial_seed() == 3
    hcq.manual_seed(0)


def test_switches_of_libraries_may_be_set():
    import hcq.torch.backends.cudnn as cudnn

    before = cudnn.benchmark
    cudnn.benchmark = True
    assert hcq.torch.backends.cudnn.benchmark and not cudnn.is_available()
    cudnn.benchmark = before
    hcq.torch.backends.cuda.matmul.allow_tf32 = False
    hcq.set_float32_matmul_precision("high")
    assert hcq.get_default_dtype() is hcq.float32
    with pytest.raises(UsageError, match="Python's floats become float32"):
        hcq.set_default_dtype(hcq.float64)


def test_what_torch_jit_has_is_in_its_own_module():
    from hcq.torch.jit import Final, is_scripting, script

    assert hcq.torch.jit.script is script and not is_scripting() and Final is not None
    recorded = hcq.jit(script(lambda x: x * 2))
    assert [recorded(Tensor([k])).item() for k in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    with pytest.raises(UsageError, match=r"use hcq.jit\(func\)"):
        hcq.torch.jit.trace(len, 1)


def test_layers_are_found_by_pytorchs_files():
    import hcq.torch.nn.modules.conv as conv
    from hcq import nn
    from hcq.torch.nn.attention import SDPBackend, sdpa_kernel
    from hcq.torch.nn.modules.batchnorm import _BatchNorm

    assert isinstance(nn.BatchNorm2d(1), _BatchNorm) and isinstance(nn.Conv1d(1, 1, 1), conv._ConvNd)
    assert nn.modules.rnn.LSTM is nn.LSTM and nn.modules.Linear is nn.Linear
    with sdpa_kernel(SDPBackend.MATH):
        assert list(nn.DataParallel(nn.Linear(1, 1)).state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(UsageError, match="split module and batch"):
        nn.DataParallel(nn.Linear(1, 1), device_ids=[0, 1])
