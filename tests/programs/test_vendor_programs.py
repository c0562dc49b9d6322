"""AMD's unmodified runtimes find emulated GPUs, and programs on them compute what they should."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.programs.conftest import HERE, Compiled, Emulate, needs

pytestmark = pytest.mark.deadline(600)
FACTS = {
    "gfx90a": ("104", "64(0x40)"),
    "gfx942": ("152", "64(0x40)"),
    "gfx1030": ("80", "32(0x20)"),
    "gfx1100": ("96", "32(0x20)"),
}


def facts(text: str) -> dict[str, list[str]]:
    """The lines of rocminfo: name -> values, in the order of the agents."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), []).append(value.strip())
    return found


def test_rocminfo_lists_the_gpu_as_the_emulation_says_it_is(arch: str, emulate: Emulate) -> None:
    done = emulate(f"amd:{arch}", "rocminfo")
    assert done.returncode == 0, done.stderr
    assert "*** Done ***" in done.stdout
    found = facts(done.stdout)
    units, width = FACTS[arch]
    assert found["Compute Unit"][1:] == [units]
    assert found["Wavefront Size"] == [width]
    assert arch in found["Name"]


def test_rocminfo_lists_as_many_gpus_as_there_are(arch: str, emulate: Emulate) -> None:
    done = emulate(f"amd:{arch}:cu=8,amd:{arch}", "rocminfo")
    assert facts(done.stdout)["Device Type"] == ["CPU", "GPU", "GPU"]


@pytest.mark.parametrize(
    "name", ["vector_add", "reduction", "managed", "streams", "print", "arithmetic", "cooperative"]
)
def test_a_program_of_hip_computes_the_right_numbers(
    name: str, arch: str, compiled: Compiled, emulate: Emulate
) -> None:
    done = emulate(f"amd:{arch}", compiled(f"{name}.hip", arch))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: 0 wrong" in done.stdout
    if name == "print":
        lines = [f"work-item {t} of group {g}: {t / 8:.3f}" for g in (0, 1) for t in (0, 3, 6)]
        assert sorted(lines) == sorted(line for line in done.stdout.splitlines() if "work-item" in line)


def test_a_process_uses_two_gpus(arch: str, compiled: Compiled, emulate: Emulate) -> None:
    done = emulate(f"amd:{arch},amd:{arch}", compiled("two_gpus.hip", arch))
    assert done.stdout.endswith("two_gpus: 0 wrong\n"), done.stdout + done.stderr


@pytest.mark.parametrize("option", [":caches", ":seed=3", ":private", ":cu=2"])
def test_a_program_of_hip_runs_on_gpus_of_every_temper(
    option: str, compiled: Compiled, emulate: Emulate, arch: str
) -> None:
    done = emulate(f"amd:{arch}{option}", compiled("reduction.hip", arch))
    assert done.stdout.endswith("reduction: 0 wrong\n"), done.stdout + done.stderr


def test_a_kernel_behind_caches_sees_what_the_host_answers(
    compiled: Compiled, emulate: Emulate, arch: str
) -> None:
    done = emulate(f"amd:{arch}:caches", compiled("print.hip", arch))
    assert done.stdout.endswith("print: 0 wrong\n"), done.stdout + done.stderr


def test_memory_that_is_not_pinned_is_copied_in_bulk(arch: str, compiled: Compiled, emulate: Emulate) -> None:
    done = emulate(f"amd:{arch}", compiled("big_copy.hip", arch), "48")
    assert done.stdout.endswith("big_copy: 0 wrong\n"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mistake", "says", "logged"),
    [
        ("pointer", "Memory access fault by GPU node-1", "page fault: write of 4 bytes at 0x123456000"),
        ("trap", "HSA_STATUS_ERROR_EXCEPTION", "the kernel gave up"),
        ("illegal", "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION", "is no gfx"),
    ],
)
def test_a_kernel_that_goes_wrong_ends_as_amds_runtime_says(
    mistake: str, says: str, logged: str, arch: str, compiled: Compiled, emulate: Emulate
) -> None:
    done = emulate(f"amd:{arch}", compiled("faults.hip", arch), mistake)
    assert done.returncode == -signal.SIGABRT, done.stdout + done.stderr
    assert says in done.stderr
    assert logged in done.stderr


def test_a_program_of_hsa_uses_what_hip_never_does(
    arch: str, compiled: Compiled, emulate: Emulate, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Partial workgroups, barriers on any signal, scratch memory on demand, memory locked for a kernel."""
    needs(request.config, shutil.which("g++") is not None, "g++")
    needs(request.config, Path("/usr/include/hsa/hsa.h").is_file(), "libhsa-runtime-dev")
    kernels = compiled("hsa_kernels.hip", arch, ("--cuda-device-only", "--no-gpu-bundle-output", "-c"))
    program = tmp_path / "hsa_dispatch"
    subprocess.run(
        ["g++", "-O1", "-o", str(program), str(HERE / "hsa_dispatch.cpp"), "-lhsa-runtime64"], check=True
    )
    done = emulate(f"amd:{arch}", program, kernels)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hsa_dispatch: 0 wrong" in done.stdout


def test_rocblas_multiplies_matrices(
    arch: str, compiled: Compiled, emulate: Emulate, request: pytest.FixtureRequest
) -> None:
    # no release of Debian's before HIP 5.7 has it
    if not list(Path("/usr/lib").glob("*/librocblas.so")):
        pytest.skip("librocblas-dev is not installed")
    if not list(Path("/usr/lib").glob(f"*/rocblas/*/library/*{arch}*")):
        pytest.skip(f"this release of rocBLAS has no kernels for {arch}")
    done = emulate(f"amd:{arch}", compiled("gemm.cpp", arch, ("-lrocblas",)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gemm: 0 wrong" in done.stdout


@dataclass(frozen=True)
class Library:
    """A library of AMD's, and the program here that uses it.

    header    there, if the package is installed
    kernels   the library that has machine code for the architectures it was built for; "" where the program has it, or
              the library compiles it when it runs
    """

    source: str
    header: str
    flags: tuple[str, ...] = ()
    kernels: str = ""
    gpus: int = 1


LIBRARIES = (
    Library("all_reduce.cpp", "rccl/rccl.h", ("-lrccl",), "librccl.so", gpus=2),
    Library("fourier.cpp", "rocfft/rocfft.h", ("-lrocfft",)),
    Library("sparse.cpp", "rocsparse/rocsparse.h", ("-lrocsparse",), "librocsparse.so"),
    Library("algorithms.hip", "thrust/system/hip/config.h"),
)


def has_kernels_for(library: Path, arch: str) -> bool:
    """Whether a library holds code objects of this architecture, by their names in it."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(f"amdgcn-amd-amdhsa--{arch}".encode()) >= 0


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda one: one.source.split(".")[0])
def test_libraries_compute_what_the_host_computes(
    arch: str, library: Library, compiled: Compiled, emulate: Emulate
) -> None:
    # not every release of a distribution has each of them
    if not Path("/usr/include", library.header).is_file():
        pytest.skip(f"{library.header} is not installed")
    if library.kernels and not any(
        has_kernels_for(one, arch) for one in Path("/usr/lib").glob(f"*/{library.kernels}")
    ):
        pytest.skip(f"{library.kernels} has no kernels for {arch}")
    program = compiled(library.source, arch, library.flags)
    done = emulate(",".join([f"amd:{arch}"] * library.gpus), program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{Path(library.source).stem}: 0 wrong" in done.stdout


def test_ctrl_c_ends_a_program_whose_kernel_does_not_end(arch: str, compiled: Compiled) -> None:
    program = compiled("faults.hip", arch)
    command = [sys.executable, "-m", "hcq", "emulate", f"amd:{arch}", "--", str(program), "endless"]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "endless: launched\n"
        os.killpg(started.pid, signal.SIGINT)  # as a terminal does
        started.communicate(timeout=60)
        assert started.returncode == -signal.SIGINT
    finally:
        started.kill()
        started.communicate()
