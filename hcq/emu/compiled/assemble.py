"""Machine code of the host from LLVM IR, kept on disk by its text, the host's processor and LLVM's version.

In       the text of a module with a function `run`
Out      Assembled: the function, callable without Python's lock
Changes  the disk cache
Next     hcq/system/cache.py (where objects are kept), hcq/system/native.py (calls)
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from typing import Any

from hcq.system import native
from hcq.system.cache import DiskCache

KIND = "emu-objects"


@functools.cache
def is_installed() -> bool:
    """Whether there is LLVM. It is not loaded, nor is its package, before something is to be compiled."""
    try:
        spec = importlib.util.find_spec("llvmlite")
    except ValueError:  # somebody has put None in its place
        return False
    # a file of that name alone is not it
    return spec is not None and spec.submodule_search_locations is not None


@functools.cache
def tools() -> Any:
    """LLVM."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def host() -> str:
    """What machine code is made by and for."""
    llvm = tools()
    return f"{(llvm.llvm_version_info, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())}"


def _new_machine() -> Any:
    llvm = tools()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)


@functools.cache
def _machine() -> Any:
    return _new_machine()


@functools.cache
def _context() -> Any:
    """Of the empty modules that engines begin with: it is there for as long as any engine is."""
    return tools().create_context()


@functools.cache
def _passes() -> tuple[Any, Any]:
    llvm = tools()
    builder = llvm.create_pass_builder(_machine(), llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    # not those that combine instructions: they make selections of integers again (see Writer.select)
    passes.add_new_gvn_pass()
    passes.add_simplify_cfg_pass()
    return passes, builder


def _key(text: str) -> str:
    return f"{host()} {hashlib.sha256(text.encode()).hexdigest()}"


def _object(text: str) -> bytes:
    """Machine code of a module, from disk or from LLVM."""
    cache, key = DiskCache(), _key(text)
    code = cache.get(KIND, key)
    if code is None:
        llvm = tools()
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
        passes, builder = _passes()
        passes.run(module, builder)
        code = bytes(_machine().emit_object(module))
        cache.put(KIND, key, code)
    return code


def _linked(code: bytes) -> Any:
    """An engine that has the code in memory; it takes a target machine for itself."""
    llvm = tools()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", _context()), _new_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


_libraries: dict[str, Any] = {}  # by their text: engines


def need(text: str, names: tuple[str, ...]) -> None:
    """Modules may declare functions from now on: these, of the module with this text, which nobody else has."""
    if text in _libraries:
        return
    engine = _libraries[text] = _linked(_object(text))
    for name in names:
        tools().add_symbol(name, engine.get_function_address(name))


class Assembled:
    """A module in memory. `run` takes one address, and returns nothing of use; `key` is what its code is kept by."""

    def __init__(self, text: str) -> None:
        self.key = _key(text)
        self._load(_object(text))

    @classmethod
    def kept(cls, key: str) -> Assembled | None:
        """What is kept by a key; None where nothing is. Its text is not needed."""
        code = DiskCache().get(KIND, key)
        if code is None:
            return None
        found = cls.__new__(cls)
        found.key = key
        found._load(code)
        return found

    def _load(self, code: bytes) -> None:
        self._engine = _linked(code)
        self.address = self._engine.get_function_address("run")
        self._run = native.function(self.address, "int(*)(void *)")

    def run(self, table: int) -> None:
        """Call it."""
        self._run(native.pointer(table))
