"""Images of kernels: what the compiler's text becomes, for the caches and the loader.

In       CUDA C or PTX of one kernel, an architecture such as sm_90
Out      the bytes of a Bundle: machine code with its PTX beside it, or PTX alone
Changes  opens nvrtc or nvJitLink at the first call
Next     nvrtc.py, nvjitlink.py, hcq/nv/bundle.py (the form), program.py (who loads it)
"""

from __future__ import annotations

from hcq.nv.bundle import Bundle
from hcq.nv.toolchain import nvjitlink, nvrtc


def of_cuda(source: str, arch: str, name: str) -> bytes:
    """CUDA C to PTX and machine code, by nvrtc. Raises UsageError with the compiler's messages, or how to get it."""
    made = nvrtc.compile_cuda(source, arch, name=f"{name}.cu")
    return Bundle(made.cubin, _plain(made.ptx)).pack()


def ptx_of_cuda(source: str, arch: str, name: str) -> bytes:
    """CUDA C to PTX alone: all that an emulated GPU runs."""
    made = nvrtc.compile_cuda(source, arch.replace("sm_", "compute_"), name=f"{name}.cu")
    return _plain(made.ptx)


def of_ptx(ptx: str, arch: str, name: str) -> bytes:
    """PTX to machine code, by nvJitLink, the PTX kept. Raises UsageError with the assembler's messages."""
    return Bundle(nvjitlink.link_ptx(ptx, arch), _plain(ptx)).pack()


def cuda_name() -> str:
    """What made a kernel of `of_cuda`: part of its key in the caches."""
    major, minor = nvrtc.version()
    return f"nvrtc-{major}.{minor}"


def ptx_name() -> str:
    """What made a kernel of `of_ptx`."""
    major, minor = nvjitlink.version()
    return f"nvjitlink-{major}.{minor}"


def _plain(ptx: str) -> bytes:
    return ptx.rstrip("\0\n ").encode() + b"\n"
