"""The road of a real GPU, as far as it goes without one: kernels become machine code with their PTX beside it, are
cached, laid out and relocated; the emulated GPU runs the PTX, and the launch uses the machine code's registers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hcq.emu.nv.shader.running import needs_nvjitlink, needs_nvrtc

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, sys
from types import SimpleNamespace as Facts
from hcq.nv.toolchain import images

chosen = images.compiler_for  # the tensor layer makes what a GPU needs
images.compiler_for = lambda device: chosen(Facts(config=device.config, port=Facts(runs_ptx=False)))
import numpy as np
from hcq import Tensor, dtypes
from hcq.frontend.core import device
from hcq.frontend.run import plan

rng = np.random.default_rng(0)
a, b = rng.standard_normal((24, 40)).astype(np.float32), rng.standard_normal((40, 16)).astype(np.float32)
found = {}
for name in ("CPU", "NV"):
    x, w = Tensor(a, device=name), Tensor(b, device=name)
    found[name] = [
        (x @ w).softmax(-1).numpy().tolist(),
        (x / (x.abs() + 1)).sum(0).numpy().tolist(),
        ((x * 100).cast(dtypes.int32) // 7 % 5).numpy().tolist(),
        x.cast(dtypes.float16).exp().cast(dtypes.float32).numpy().tolist(),
    ]
from hcq.nv.bundle import Bundle
found["key"] = device.target("NV").key
images = [key[2] for key in plan._programs if key[0] == "NV"]
found["forms"] = [[bool(form) for form in Bundle.of(image)] for image in images]
found["llvm"] = "llvmlite" in sys.modules
print(json.dumps(found))
"""


def run(emulate: str, renderer: str, cache: Path) -> dict[str, Any]:
    environ = {
        **os.environ,
        "HCQ_EMULATE": emulate,
        "HCQ_NV_RENDERER": renderer,
        "HCQ_CACHE_DIR": str(cache),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environ, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_nvrtc
@needs_nvjitlink
@pytest.mark.deadline(150)
@pytest.mark.parametrize(
    ("arch", "renderer"),
    [
        ("sm_90", "ptx"),
        ("sm_80", "cuda"),
        *(
            pytest.param(arch, renderer, marks=pytest.mark.thorough)
            for arch, renderer in (("sm_80", "ptx"), ("sm_90", "cuda"), ("sm_120", "ptx"), ("sm_120", "cuda"))
        ),
    ],
)
def test_tensors_run_from_machine_code_that_was_loaded_by_hand(renderer, arch, tmp_path):
    import numpy as np

    first = run(f"nv:{arch}", renderer, tmp_path)
    assert first["key"].startswith(f"{arch}/{renderer}-")
    assert first["forms"]
    assert all(form == [True, True] for form in first["forms"])  # cubin and PTX
    for ours, theirs in zip(first["NV"], first["CPU"]):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3 if ours is first["NV"][3] else 2e-5, atol=1e-5)
    again = run(f"nv:{arch}", renderer, tmp_path)
    assert again["NV"] == first["NV"]
    assert not again["llvm"], "a kernel that is cached needs no compiler"


def test_without_nvidias_compilers_a_gpu_is_told_which_extra_to_install(monkeypatch):
    """An emulated GPU needs none for LLVM's PTX; a real one cannot run without."""
    from hcq.errors import UsageError
    from hcq.nv.toolchain import library, nvjitlink, nvrtc
    from hcq.nv.toolchain.images import compiler_for

    class Device:
        class config:
            nv_renderer = "ptx"

        class port:
            runs_ptx = True

    monkeypatch.setattr(library, "candidates", lambda name: [])
    nvjitlink.library.cache_clear()
    nvrtc.library.cache_clear()
    try:
        assert compiler_for(Device) is None
        Device.config.nv_renderer = "cuda"
        with pytest.raises(UsageError, match=r"nvrtc is not installed.*pip install 'hcq\[nv\]'"):
            compiler_for(Device)
        Device.port.runs_ptx = False
        Device.config.nv_renderer = "ptx"
        with pytest.raises(UsageError, match=r"nvJitLink is not installed.*pip install 'hcq\[nv\]'"):
            compiler_for(Device)
    finally:
        nvjitlink.library.cache_clear()
        nvrtc.library.cache_clear()
