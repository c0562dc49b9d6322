"""AMD's own libraries on emulated GPUs: programs of HIP and HSA compiled by AMD's compiler, run by the supervisor.

A peer's drivers, tinygrad's for AMD and NVIDIA, are run in the same way.

In       sources beside this file; Debian's packages rocminfo, hipcc, libhsa-runtime-dev, librocblas-dev
Out      fixtures: `arch`, each architecture that the installed runtime knows; `compiled`, a program; `emulate`
Changes  nothing that outlives the tests
Next     test_vendor_programs.py, test_peer_programs.py, ../hcq/emu/supervisor (the supervisor), docs/emulated-kernel.md
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ARCHITECTURES = ("gfx90a", "gfx942", "gfx1030", "gfx1100")
SECONDS = 240  # for one program; the machine may be busy
Compiled = Callable[..., Path]
Emulate = Callable[..., "subprocess.CompletedProcess[str]"]


def run(words: str, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """A program on these emulated GPUs, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "hcq", "emulate", words, "--", *map(str, command)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@functools.cache
def known_architectures() -> tuple[str, ...]:
    """Those that the installed runtime lists: each release knows some."""
    if shutil.which("rocminfo") is None:
        return ()
    found = {arch: run(f"amd:{arch}", ["rocminfo"]).stdout for arch in ARCHITECTURES}
    return tuple(arch for arch, text in found.items() if f"amdgcn-amd-amdhsa--{arch}" in text)


def needs(config: pytest.Config, is_there: bool, package: str) -> None:
    """Skip the test without a package, or fail where none may be missing."""
    if is_there:
        return
    if config.getoption("--require-vendor"):
        pytest.fail(f"--require-vendor, and there is no {package}")
    pytest.skip(f"there is no {package}")


@pytest.fixture(scope="session", params=ARCHITECTURES)
def arch(request: pytest.FixtureRequest) -> str:
    """Each architecture that the installed runtime knows."""
    needs(request.config, shutil.which("rocminfo") is not None, "rocminfo")
    tried = run("amd:gfx90a", ["true"])
    needs(request.config, tried.returncode == 0, f"way to supervise a program here: {tried.stderr.strip()}")
    known = known_architectures()
    assert known, "rocminfo lists no emulated GPU of any architecture"
    if request.param not in known:
        pytest.skip(f"this release of AMD's runtime does not know {request.param}")
    return str(request.param)


@pytest.fixture
def emulate() -> Emulate:
    """emulate("amd:gfx90a", program, "argument"): its output and exit status."""
    return lambda words, *command: run(words, command)


@pytest.fixture(scope="session")
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """compiled("vector_add.hip", "gfx90a", ["-lrocblas"]): the program, made once."""
    needs(request.config, shutil.which("hipcc") is not None, "hipcc")
    folder = tmp_path_factory.mktemp("programs")

    @functools.cache
    def make(source: str, arch: str, flags: tuple[str, ...] = ()) -> Path:
        made = folder / f"{Path(source).stem}-{arch}"
        # hipcc takes NVIDIA's compiler where it finds one
        done = subprocess.run(
            [
                "hipcc",
                f"--offload-arch={arch}",
                "-O2",
                "-x",
                "hip",
                str(HERE / source),
                "-o",
                str(made),
                *flags,
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "HIP_PLATFORM": "amd"},
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return made

    return make
