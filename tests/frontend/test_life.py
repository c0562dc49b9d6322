"""Tensors when their device is closed, and in children of fork, spawn and forkserver; on emulated GPUs, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.own_devices
KINDS = {"CPU": "", "AMD": "amd:gfx1100", "NV": "nv:sm_90"}
SETUP = """
import os, sys, threading
import numpy as np
import hcq
from hcq import Tensor, jit, nn

def ask(act):
    try:
        return np.asarray(act()).tolist()
    except hcq.UsageError as error:
        return str(error)

def child(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def lines(name: str, script: str) -> list[str]:
    """What a program prints that runs on one kind of device, when it ends as it should."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HCQ_")}
    cache = {"HCQ_CACHE_DIR": os.environ["HCQ_CACHE_DIR"]} if "HCQ_CACHE_DIR" in os.environ else {}
    done = subprocess.run(
        [sys.executable, "-c", SETUP + script],
        capture_output=True,
        text=True,
        timeout=58,
        env={**kept, **cache, "HCQ_EMULATE": KINDS[name], "HCQ_DEVICE": name, "HCQ_REPORT": "off"},
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout.splitlines()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_tensors_open_a_closed_device_anew_and_those_that_lived_on_it_say_what_became_of_them(
    name: str,
) -> None:
    script = """
old = Tensor([1.0, 2.0]).realize()
lazy = old + 1
weight = nn.Linear(2, 2).weight
double = jit(lambda a: a * 2)
for _ in range(3):
    double(old)
Tensor.rand(2)
for turn in range(2):
    hcq.open(hcq.Device.default).close()
    for act in (old.numpy, old.tolist, (old + 1).numpy, lazy.numpy, weight.numpy, lambda: double(old).numpy()):
        found = ask(act)
        assert "it was closed" in found and "Make the tensor again" in found, found
    new = Tensor([3.0, 4.0])
    print(ask((new + 1).numpy), [ask(double(new).numpy) for _ in range(4)][-1], Tensor.rand(2).shape)
    linear = nn.Linear(2, 2)
    linear(new.reshape(1, 2)).sum().backward()
    print(linear.weight.grad.tolist())
    Tensor.manual_seed(1)
"""
    assert lines(name, script) == ["[4.0, 5.0] [6.0, 8.0] (2,)", "[[3.0, 4.0], [3.0, 4.0]]"] * 2


def test_a_child_goes_on_with_the_tensors_of_its_parent() -> None:
    script = """
Tensor.manual_seed(3)
x = Tensor([1.0, 2.0]).realize()
flying = (x * 3).realize()
lazy = x + 10
counter = Tensor([0.0]).realize()
model = nn.Linear(2, 2)
optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

@jit
def step(a):
    counter.assign(counter + 1).realize()
    optimizer.zero_grad()
    loss = model(a).square().sum()
    loss.backward()
    optimizer.step()
    return loss.realize()

inputs = Tensor([[1.0, 2.0]])
for _ in range(3):
    step(inputs)
before = model.weight.numpy()

def use():
    print(x.tolist(), flying.tolist(), lazy.tolist(), counter.tolist())
    assert (model.weight.numpy() == before).all()
    print(["%.6f" % step(inputs).item() for _ in range(3)], counter.tolist(), Tensor.rand(2).tolist())
    x.assign(Tensor([7.0, 7.0])).realize()
    x.sum().item()

child(use)
child(use)
print(x.tolist(), counter.tolist())
use()
"""
    found = lines("CPU", script)
    assert found[0] == "[1.0, 2.0] [3.0, 6.0] [11.0, 12.0] [3.0]"
    assert found[:2] == found[2:4] == found[5:]
    assert found[4] == "[1.0, 2.0] [3.0]"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["AMD", "NV"])
def test_in_a_child_the_tensors_of_a_gpu_say_whose_they_are_and_new_ones_work(name: str) -> None:
    script = """
x = Tensor([1.0, 2.0]).realize()
lazy = x + 10
moved = x.to("CPU").realize()
double = jit(lambda a: a * 2)
for _ in range(3):
    double(x)
Tensor.rand(2)

def use():
    for act in (x.numpy, lazy.numpy, (x * 2).numpy, lambda: double(x).numpy(), lambda: x.to("CPU").numpy()):
        found = ask(act)
        assert "is a fork of the one that opened it" in found and "spawn" in found, found
    print(moved.tolist(), moved.to(hcq.Device.default).tolist())
    new = Tensor([3.0, 4.0])
    print((new + 1).tolist(), [double(new).tolist() for _ in range(4)][-1], Tensor.rand(2).shape)

child(use)
child(use)
print(x.tolist(), lazy.tolist(), double(x).tolist())
"""
    assert lines(name, script) == [
        *["[1.0, 2.0] [1.0, 2.0]", "[4.0, 5.0] [6.0, 8.0] (2,)"] * 2,
        "[1.0, 2.0] [11.0, 12.0] [2.0, 4.0]",
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_a_child_is_not_stopped_by_threads_of_its_parent_that_build_and_compile(name: str) -> None:
    script = """
def work(number):
    size = 3
    while not over:
        size += 1
        (Tensor.ones(size, number).exp() + size).sum(0).tolist()
(Tensor.ones(2) * 5).tolist()  # what is imported lazily is there: a fork inside an import is Python's own affair
over = []
threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in (3, 5)]
for each in threads: each.start()
for turn in range(4):
    child(lambda: print((Tensor.ones(turn + 2) * turn).tolist()))
over.append(1)
for each in threads: each.join()
"""
    assert lines(name, script) == [str([float(turn)] * (turn + 2)) for turn in range(4)]


def test_a_thread_number_without_gradients_does_not_stay_in_a_child() -> None:
    script = """
inside, leave = threading.Event(), threading.Event()
def stay():
    with hcq.no_grad():
        inside.set()
        leave.wait()
thread = threading.Thread(target=stay)
thread.start()
inside.wait()
def use():
    from hcq.frontend.core.base import thread_modes
    assert not thread_modes
    w = Tensor([2.0], requires_grad=True)
    (w * 3).sum().backward()
    print(w.grad.tolist())
child(use)
leave.set()
thread.join()
"""
    assert lines("CPU", script) == ["[3.0]"]


WORKER = """
import numpy as np
from hcq import Tensor
def double(array):
    return (Tensor(array) * 2).numpy()
"""


@pytest.mark.sampled(2)
@pytest.mark.deadline(180)
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes_computes_with_tensors(how: str, tmp_path: Path) -> None:
    (tmp_path / "pooled.py").write_text(WORKER)
    script = f"""
import multiprocessing
sys.path.insert(0, {str(tmp_path)!r})
from pooled import double
if __name__ == "__main__":
    x = Tensor([1.0, 2.0]).realize()
    with multiprocessing.get_context({how!r}).Pool(2) as pool:
        found = pool.map(double, [np.full(3, n, np.float32) for n in range(6)])
    print([int(each[0]) for each in found], x.tolist())
"""
    assert lines("CPU", script) == ["[0, 2, 4, 6, 8, 10] [1.0, 2.0]"]
