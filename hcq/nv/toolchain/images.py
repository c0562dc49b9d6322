"""Images of kernels: what the compiler's text becomes, for the caches and the loader.

In       CUDA C or PTX of one kernel, an architecture such as sm_90
Out      the bytes of a Bundle: machine code with its PTX beside it, or PTX alone
Changes  opens nvrtc or nvJitLink at the first call
Next     nvrtc.py, nvjitlink.py, hcq/nv/bundle.py (the form), program.py (who loads it)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.errors import UsageError
from hcq.nv import ptx as ptx_module
from hcq.nv.bundle import Bundle
from hcq.nv.cubin import Cubin
from hcq.nv.toolchain import nvjitlink, nvrtc
from hcq.system.cache import DiskCache


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


def compiler_for(device: Any) -> tuple[str, str, Callable[[str, str, str], bytes]] | None:
    """What makes the kernels of tensor programs for an open NvDevice: its name, what it takes, and how it is called.

    None where PTX runs as LLVM writes it, and nothing more is made of it.
    """
    if device.config.nv_renderer == "cuda":
        return (
            (f"{cuda_name()}-ptx", "cuda", ptx_of_cuda)
            if device.port.runs_ptx
            else (cuda_name(), "cuda", of_cuda)
        )
    return None if device.port.runs_ptx else (ptx_name(), "ptx", of_ptx)


def loadable(image: bytes, arch: str, name: str, runs_ptx: bool) -> Bundle:
    """What a device loads of an image: machine code, or PTX where the port runs that; what is missing is made.

    Raises UsageError when the image has not the form that is needed, and it cannot be made.
    """
    bundle = Bundle.of(image)
    module = ptx_module.read_module(bundle.ptx.decode("utf-8", "replace"), name) if bundle.ptx else None
    if module is not None and (runs_ptx or not bundle.cubin):
        ptx_module.check_target(module, arch, name)
    if runs_ptx:
        if module is None:
            raise UsageError(
                f"load({name!r}): an emulated GPU runs PTX, and this image has only machine code. Load the PTX, or "
                "both in one image: hcq.nv.toolchain.images."
            )
        if bundle.cubin or not module.variables:
            return bundle  # else machine code says where variables are and what is in them first
    if bundle.cubin:
        return bundle
    if module is not None and module.target == f"{arch}a":
        arch = module.target  # PTX for what only this architecture has is assembled for it by that name
    try:
        tool = ptx_name()
    except UsageError as error:
        raise UsageError(
            f"load({name!r}): this is PTX alone, and machine code is needed of it. {error}"
        ) from error
    cache, key = DiskCache(), f"{tool}\n{arch}\n".encode() + bundle.ptx
    found = cache.get("cubin", key)
    if found is not None:
        try:
            known = Bundle.of(found)
            Cubin(known.cubin, name)
            return known
        except UsageError:
            pass  # an image of another form: make it anew
    made = of_ptx(bundle.ptx.decode("utf-8", "replace"), arch, name)
    cache.put("cubin", key, made)
    return Bundle.of(made)


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
