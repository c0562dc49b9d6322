"""Native code: calls libc and functions at an address, shows raw memory as buffers. The only user of cffi's types.

In       addresses and C prototypes
Out      callables that release the GIL, memoryviews over raw memory, addresses of libc and libm symbols
Changes  nothing by itself
Next     port.py (system calls on top of this), cpu/processor.py (the native code that is called),
         native_ctypes.py (the replacement where cffi is not installed)
Source   cffi's ABI mode; POSIX dlsym, mmap, pthread_create

We use only the compiled part of cffi, which generated bindings import and which reads C types itself. The pure Python
part would load a C parser, 25 ms at every start, to read the eight prototypes below.
"""

from __future__ import annotations

import functools
import os
from types import SimpleNamespace
from typing import Any

from hcq.errors import DriverError

_LIBC = {
    "mmap": "void *(*)(void *, size_t, int, int, int, int64_t)",
    "munmap": "int(*)(void *, size_t)",
    "mprotect": "int(*)(void *, size_t, int)",
    "madvise": "int(*)(void *, size_t, int)",
    "pthread_create": "int(*)(uintptr_t *, void *, void *, void *)",
    "pthread_join": "int(*)(uintptr_t, void *)",
    "dlsym": "void *(*)(void *, char *)",
    "dlopen": "void *(*)(char *, int)",
    "fdopendir": "void *(*)(int)",
    "syscall": "long(*)(long, long, long, long, long, long, long)",
}

MATH_LIBRARIES = (b"libm.so.6", b"libm.so", b"libm.dylib")


@functools.cache
def _backend() -> Any:
    """cffi's compiled half, or what stands for it where cffi is not installed. Imported here: a device needs it."""
    try:
        import _cffi_backend

        return _cffi_backend
    except ImportError:
        from hcq.system import native_ctypes

        return native_ctypes


@functools.cache
def _border() -> tuple[Any, Any]:
    backend = _backend()
    ffi = backend.FFI()
    process = backend.load_library(None)
    functions = {name: process.load_function(ffi.typeof(what), name) for name, what in _LIBC.items()}
    return ffi, SimpleNamespace(**functions)


def libc() -> Any:
    """The C library's functions listed above; integers go in, pointers are made with `pointer`."""
    return _border()[1]


def pointer(va: int) -> Any:
    """A void* for an address."""
    return _border()[0].cast("void *", va)


def address(value: Any) -> int:
    """The address a C pointer holds."""
    return int(_border()[0].cast("uintptr_t", value))


def address_of(data: Any) -> int:
    """The address of a contiguous buffer's bytes (bytearray, array, memoryview); the caller keeps it alive."""
    ffi = _border()[0]
    return int(ffi.cast("uintptr_t", ffi.from_buffer(data)))


def new_handle() -> Any:
    """One pthread_t, to be filled by pthread_create."""
    return _border()[0].new("uintptr_t *")


def errno() -> int:
    """The errno of the last call made through this module in this thread."""
    return int(_border()[0].errno)


def system_call(number: int, *arguments: int) -> int:
    """A system call that libc has no function for, by its number on this machine. Returns its result, or -errno."""
    result = int(libc().syscall(number, *arguments, *(0,) * (6 - len(arguments))))
    return -errno() if result == -1 else result


def set_errno(number: int) -> None:
    """What C finds in errno when the callback that runs in this thread returns."""
    _border()[0].errno = number


def callback(prototype: str, function: Any, failed: Any) -> Any:
    """A C function pointer that calls a Python function, from any thread; valid for as long as it is kept.

    failed   called as failed(type, exception, traceback) when the function raises: what C gets instead
    """
    return _border()[0].callback(prototype, function, onerror=failed)


def view(va: int, size_bytes: int, owner: object = None) -> memoryview:
    """Writable bytes at an address. The view keeps `owner` alive; without one the caller keeps the memory mapped."""
    ffi = _border()[0]
    start = ffi.cast("char *", va)
    if owner is not None:
        start = ffi.gc(start, _Keep(owner))
    return memoryview(ffi.buffer(start, size_bytes)).cast("B")


class _Keep:
    """A destructor that does nothing but hold a reference until it is called."""

    def __init__(self, owner: object) -> None:
        self.owner = owner

    def __call__(self, pointer: object) -> None:
        self.owner = None


def write(va: int, data: Any, size_bytes: int) -> None:
    """Copy bytes from any contiguous buffer to an address."""
    ffi = _border()[0]
    ffi.memmove(ffi.cast("char *", va), data, size_bytes)


def read(va: int, size_bytes: int) -> bytes:
    """Copy bytes from an address."""
    ffi = _border()[0]
    return bytes(ffi.buffer(ffi.cast("char *", va), size_bytes))


def peek(va: int, size_bytes: int) -> bytes:
    """Copy bytes from an address that may be wrong: as many as can be read there, b"" where none can.

    The system copies them, so that a wild pointer of a program that is watched is not ours to die of.
    """
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a system without it, or one that forbids it
        return b""
    try:
        return os.pread(memory, size_bytes, va)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(memory)


def read_into(va: int, target: Any, size_bytes: int) -> None:
    """Copy bytes from an address into any contiguous writable buffer."""
    ffi = _border()[0]
    ffi.memmove(target, ffi.cast("char *", va), size_bytes)


def function(va: int, prototype: str) -> Any:
    """The function at an address, as a callable that releases the GIL. prototype: as in C, "void(*)(void *)"."""
    return _border()[0].cast(prototype, va)


def symbol(name: str) -> int:
    """The address of a libc symbol in this process. Raises DriverError when the C library has none."""
    found = address(libc().dlsym(pointer(0), name.encode()))
    if not found:
        raise DriverError(f"dlsym({name!r}): this C library has no such symbol, and the CPU device needs it.")
    return found


def math_symbol(name: str) -> int:
    """The address of a libm symbol, or 0 when this libm has none (the caller has checked that the name is libm's)."""
    return address(libc().dlsym(pointer(_math_library()), name.encode()))


@functools.cache
def _math_library() -> int:
    for path in MATH_LIBRARIES:
        if handle := address(libc().dlopen(path, 2)):  # RTLD_NOW
            return handle
    raise DriverError(
        f"dlopen: none of {[path.decode() for path in MATH_LIBRARIES]} opens; libm is part of libc6."
    )


def library(path: str) -> int:
    """Open a shared library by path or name, its own dependencies resolved beside it. 0 when it cannot be opened."""
    return address(libc().dlopen(path.encode(), 2))  # RTLD_NOW


def library_symbol(handle: int, name: str) -> int:
    """The address of a symbol of a library from `library`, or 0 when it has none."""
    return address(libc().dlsym(pointer(handle), name.encode()))


def new(kind: str, initial: Any = None) -> Any:
    """A C variable or array for native code to read or fill, zeroed unless `initial` is given: new("char[]", 64)."""
    return _border()[0].new(kind, initial)


def text_bytes(va: int) -> bytes:
    """The zero-terminated bytes at an address, which must be a C string's."""
    ffi = _border()[0]
    return bytes(ffi.string(ffi.cast("char *", va)))


def text_at(place: Any) -> str:
    """The zero-terminated text that a char pointer points to."""
    return str(_border()[0].string(place).decode("utf-8", "replace"))


def encoded_function(va: int, encoding: str) -> Any:
    """The function at an address by the types of its result and arguments, as Objective-C encodes them: "v@:Q".

    It takes and gives plain numbers, tuples for structures; for pointers also bytes, or a bytearray to be written.
    Raises  DriverError for a type that is not known here
    """
    result, *given = split_encoding(encoding)
    kinds = [_c_type(one) for one in given]
    call = _border()[0].cast(_function_type(encoding), va)
    gives_address = result[0] in _POINTERS

    def called(*arguments: Any) -> Any:
        converted = [
            _argument(one, kind, value) for one, kind, value in zip(given, kinds, arguments, strict=True)
        ]
        found = call(*converted)
        return address(found) if gives_address else found

    return called


def encoded_callback(encoding: str, function: Any) -> Any:
    """A C function pointer of these types that calls a Python function; valid for as long as it is kept."""
    return _border()[0].callback(_function_type(encoding), function)


@functools.cache
def split_encoding(encoding: str) -> tuple[str, ...]:
    """The types of a result and its arguments, one by one.

    >>> split_encoding("v@:^@{_NSRange=QQ}C")
    ('v', '@', ':', '^@', '{_NSRange=QQ}', 'C')
    """
    found, at = [], 0
    while at < len(encoding):
        end = at + (encoding[at] == "^")
        end = encoding.index("}", end) + 1 if encoding[end] == "{" else end + 1
        found.append(encoding[at:end])
        at = end
    return tuple(found)


_POINTERS = "@:#*^"
# Source: Objective-C Runtime Programming Guide, "Type Encodings"
_C_TYPES = {
    "c": "signed char",
    "C": "unsigned char",
    "s": "short",
    "S": "unsigned short",
    "i": "int",
    "I": "unsigned int",
    "q": "long long",
    "Q": "unsigned long long",
    "f": "float",
    "d": "double",
    "B": "_Bool",
}


@functools.cache
def _c_type(one: str) -> Any:
    backend = _backend()
    if one == "v":
        return backend.new_void_type()
    if one[0] in _POINTERS:
        return backend.new_pointer_type(backend.new_void_type())
    if one[0] == "{":
        name, _, fields = one[1:-1].partition("=")
        made = backend.new_struct_type(f"struct {name}")
        types = [(f"field{number}", _c_type(letter), -1) for number, letter in enumerate(fields)]
        backend.complete_struct_or_union(made, types)
        return made
    if one not in _C_TYPES:
        raise DriverError(f"{one!r}: not a type encoding that is known here. Known: {', '.join(_C_TYPES)}.")
    return backend.new_primitive_type(_C_TYPES[one])


@functools.cache
def _function_type(encoding: str) -> Any:
    result, *given = split_encoding(encoding)
    return _backend().new_function_type(tuple([_c_type(one) for one in given]), _c_type(result), False)


def _argument(one: str, kind: Any, value: Any) -> Any:
    ffi = _border()[0]
    if one[0] in _POINTERS:
        return ffi.cast(kind, value) if isinstance(value, int) else ffi.cast(kind, ffi.from_buffer(value))
    return ffi.new(_pointer_to(kind), list(value))[0] if one[0] == "{" else value


@functools.cache
def _pointer_to(kind: Any) -> Any:
    return _backend().new_pointer_type(kind)
