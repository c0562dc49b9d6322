"""Make kernels.tar.xz: the kernels of the hardware check as machine code for every GPU it may run on.

In       kernels.cu, mark.cu and shared.cu, kernels.cl and mark.cl; nvrtc, clang, llvmlite, lld
Out      kernels.tar.xz: ARCH for all kernels, ARCH.mark1, ARCH.mark2, NVIDIA's ARCH.shared; `sources`, their digest
Changes  the archive
Next     kernels.py (who reads it)

For those who change a kernel; who checks a GPU needs no compiler. Clang writes LLVM IR once for each of AMD's two
families of work-items where it does not know an architecture; the LLVM of llvmlite makes machine code of that.

    python -m hcq.tools.hw.make_kernels [CLANG [LLD]]
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from hcq.amd.chip import CHIPS
from hcq.compiler.assemble.llvm_cpu import binding
from hcq.errors import UsageError
from hcq.nv.toolchain import images
from hcq.tools.hw import kernels

NV_ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
CODE_OBJECT_VERSION = 400  # the oldest that LLVM still writes, which ROCm 5 takes, too
MARKS = {"mark1": 1, "mark2": 2}
TRIPLE = "amdgcn-amd-amdhsa"
TOOLS = ("clang", "ld.lld")


def main(argv: list[str]) -> int:
    """Write the archive."""
    clang, linker = (*argv, *TOOLS[len(argv) :])
    made = {**_of_nvidia(), **_of_amd(clang, linker), kernels.SOURCES: kernels.digest().encode()}
    pack(made)
    print(f"{kernels.ARCHIVE}: {len(made)} files, {kernels.ARCHIVE.stat().st_size} bytes")
    return 0


def pack(made: dict[str, bytes]) -> None:
    """Write the archive: what is alike beside each other. The same files make the same archive."""
    with tarfile.open(kernels.ARCHIVE, "w:xz", preset=9) as archive:
        for name in sorted(made, key=lambda name: (name.partition(".")[2], name)):
            member = tarfile.TarInfo(name)
            member.size = len(made[name])
            archive.addfile(member, io.BytesIO(made[name]))


def _of_nvidia() -> dict[str, bytes]:
    found = {}
    for arch in NV_ARCHS:
        found[arch] = images.of_cuda(kernels.source("kernels.cu"), arch, "hw_check")
        for name, mark in MARKS.items():
            text = f"#define MARK {mark}\n{kernels.source('mark.cu')}"
            found[f"{arch}.{name}"] = images.of_cuda(text, arch, name)
        found[f"{arch}.shared"] = images.of_cuda(kernels.source("shared.cu"), arch, "shared")
    return found


def _of_amd(clang: str, linker: str) -> dict[str, bytes]:
    found = {}
    for arch in CHIPS:
        found[arch] = _linked(_object(clang, arch, "kernels.cl"), linker)
        for name, mark in MARKS.items():
            found[f"{arch}.{name}"] = _linked(_object(clang, arch, "mark.cl", f"-DMARK={mark}"), linker)
    return found


def _object(clang: str, arch: str, name: str, *options: str) -> bytes:
    """Machine code: by clang, or, for what is younger than this clang, by llvmlite's LLVM out of clang's IR."""
    made = _compiled(clang, arch, name, "-c", f"-mcode-object-version={CODE_OBJECT_VERSION // 100}", *options)
    if not made.returncode:
        return made.stdout
    return _assembled(arch, _ir(clang, arch, name, *options))


def _compiled(clang: str, arch: str, name: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    words = [
        clang,
        "-x",
        "cl",
        "-cl-std=CL2.0",
        "-target",
        TRIPLE,
        f"-mcpu={arch}",
        "-nogpulib",
        "-O2",
        *options,
    ]
    words += ["-o", "-", str(Path(__file__).with_name(name))]
    return subprocess.run(words, capture_output=True, check=False)


def _ir(clang: str, arch: str, name: str, *options: str) -> str:
    """The kernels as LLVM IR that names no architecture."""
    family = "gfx90a" if arch.startswith("gfx9") else "gfx1030"
    done = _compiled(clang, family, name, "-S", "-emit-llvm", *options)
    flags = "!llvm.module.flags = !{"
    text = done.stdout.decode()
    if done.returncode or flags not in text:
        raise UsageError(f"{clang} {name}: {done.stderr.decode() or 'no module flags in its LLVM IR'}")
    text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", text).replace(flags, f"{flags}!9999, ")
    text += f'\n!9999 = !{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT_VERSION}}}\n'
    return re.sub(r"^target datalayout.*$", "", text, flags=re.MULTILINE)


def _assembled(arch: str, text: str) -> bytes:
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = "+wavefrontsize32" if arch.startswith("gfx1") else ""
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=arch, features=features, opt=2)
    module = llvm.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    image: bytes = machine.emit_object(module)
    return image


def _linked(image: bytes, linker: str) -> bytes:
    """As HIP's loader wants it; ours takes either."""
    with tempfile.TemporaryDirectory() as folder:
        plain, linked = Path(folder, "plain.o"), Path(folder, "linked.so")
        plain.write_bytes(image)
        words = [linker, "-shared", "-o", str(linked), str(plain)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{' '.join(words)} -> {done.stderr}")
        return linked.read_bytes()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
