"""A replacement for cffi, made with ctypes, for machines without cffi: the functions of it that native.py uses.

In       C prototypes and types as text, addresses, Python buffers
Out      the same names and answers as `_cffi_backend`'s, slower by about a microsecond a call
Changes  nothing by itself
Next     native.py (chooses this or cffi), tests/hcq/system/test_native.py (both give the same answers)
Source   Python's documentation of ctypes and of the buffer protocol; cffi's of the functions that are named here

A pointer is a `Pointer` and is never converted to a number on the way. For a pointer argument functions accept numbers,
bytes, arrays of `new` and Pointers; they return plain numbers.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

SIMPLE_BUFFER, WRITABLE_MEMORY = 0, 0x200  # PyBUF_SIMPLE, PyBUF_WRITE
_FUNCTION: Any = ctypes.CFUNCTYPE(None).__base__  # what every function's type is made of

_NUMBERS: dict[str, Any] = {
    "signed char": ctypes.c_byte,
    "unsigned char": ctypes.c_ubyte,
    "short": ctypes.c_short,
    "unsigned short": ctypes.c_ushort,
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "long": ctypes.c_long,
    "unsigned long": ctypes.c_ulong,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "uintptr_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "_Bool": ctypes.c_bool,
    "char": ctypes.c_char,
}


class Pointer(ctypes.c_void_p):
    """An address. `owner`: what is kept alive for as long as this is; `to`: what it points to, where that is known."""

    owner: object = None
    to: Any = None

    @classmethod
    def from_param(cls, value: Any) -> Any:
        """What a function's pointer argument takes."""
        return ctypes.c_void_p(address_of(value))

    def __bool__(self) -> bool:
        return bool(self.value)


class _Buffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
        ("item", ctypes.c_ssize_t),
        ("is_readonly", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(value: Any) -> int:
    """The address that a value stands for: a number, a pointer, a function, an array, or the bytes of a buffer."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & (1 << 64) - 1
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    if isinstance(value, (ctypes.Array, ctypes.Structure)):
        return ctypes.addressof(value)
    if isinstance(value, _FUNCTION):
        return ctypes.cast(value, ctypes.c_void_p).value or 0
    return _bytes_of(value)[0]


def _bytes_of(data: Any) -> tuple[int, int]:
    """Address and size of a contiguous buffer's bytes; whoever passes it keeps it alive."""
    found = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(data), ctypes.byref(found), SIMPLE_BUFFER)
    try:
        return found.start or 0, found.size
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))


# ------------------------------------------------------------ types


@functools.cache
def type_of(text: str) -> Any:
    """A C type: None for void, a class of ctypes for the rest. Raises TypeError for one that is not known here."""
    text = text.strip()
    if text.endswith("*"):
        inner = text[:-1].strip()
        return new_pointer_type(None if inner.endswith("*") else type_of(inner))
    if "(*)(" in text:
        result, _, arguments = text.rstrip(")").partition("(*)(")
        given = [type_of(one) for one in arguments.split(",") if one.strip()]
        return new_function_type(tuple(given), type_of(result), False)
    if text == "void":
        return None
    if text not in _NUMBERS:
        raise TypeError(f"{text!r} is no C type that is known here")
    return _NUMBERS[text]


def new_void_type() -> None:
    """void."""
    return


def new_primitive_type(name: str) -> Any:
    """A number's type by its name in C."""
    return type_of(name)


@functools.cache
def new_pointer_type(to: Any) -> Any:
    """A pointer to a type."""
    return type("PointerTo", (Pointer,), {"to": to})


def new_struct_type(name: str) -> Any:
    """A structure, whose fields come with `complete_struct_or_union`."""
    return type(name.partition(" ")[2] or name, (ctypes.Structure,), {})


def complete_struct_or_union(made: Any, fields: Sequence[tuple[str, Any, int]]) -> None:
    """The fields of a structure, each as its name, its type and -1."""
    made._fields_ = [(name, kind) for name, kind, _ in fields]


def new_function_type(arguments: tuple[Any, ...], result: Any, has_ellipsis: bool) -> Any:
    """A function's type. Pointers that it gives are numbers."""
    given = ctypes.c_void_p if isinstance(result, type) and issubclass(result, Pointer) else result
    return ctypes.CFUNCTYPE(given, *arguments, use_errno=True)


# ------------------------------------------------------------ values


class FFI:
    """What cffi's FFI does, as far as native.py asks for it."""

    def typeof(self, text: str) -> Any:
        """The type that a text names."""
        return type_of(text)

    def cast(self, kind: Any, value: Any) -> Any:
        """A number, or a pointer, or a function at an address."""
        made = type_of(kind) if isinstance(kind, str) else kind
        if issubclass(made, (Pointer, _FUNCTION)):
            return made(address_of(value))
        return address_of(value)

    def from_buffer(self, data: Any) -> Pointer:
        """A pointer to a buffer's bytes, which it keeps alive."""
        made = Pointer(_bytes_of(data)[0])
        made.owner = data
        return made

    def gc(self, pointer: Pointer, destructor: object) -> Pointer:
        """A pointer that keeps something alive."""
        made = Pointer(pointer.value)
        made.owner = destructor
        return made

    def buffer(self, start: Pointer, size_bytes: int) -> memoryview:
        """Writable bytes at an address. They keep alive what the pointer does."""
        if start.owner is None:
            found: memoryview = _memory(start.value or 0, size_bytes, WRITABLE_MEMORY)
            return found
        held: Any = (ctypes.c_ubyte * size_bytes).from_address(start.value or 0)
        held.owner = start.owner
        return memoryview(held)

    def memmove(self, target: Any, source: Any, size_bytes: int) -> None:
        """Copy bytes. Raises ValueError where a buffer of Python's has fewer."""
        places = [
            (address_of(one), size_bytes) if isinstance(one, Pointer) else _bytes_of(one)
            for one in (target, source)
        ]
        if min(size for _, size in places) < size_bytes:
            raise ValueError(f"{size_bytes} bytes are more than a buffer has")
        ctypes.memmove(places[0][0], places[1][0], size_bytes)

    def string(self, value: Any) -> bytes:
        """The zero-terminated bytes at an address."""
        return ctypes.string_at(address_of(value))

    def new(self, kind: Any, initial: Any = None) -> Any:
        """A variable or an array, zeroed unless `initial` is given."""
        if not isinstance(kind, str):
            made = (kind.to * 1)()
            made[0] = kind.to(*initial)
            return made
        array = re.fullmatch(r"(.+?)\[(\d*)\]", kind)
        if array is None:  # a pointer to one
            return (type_of(kind.rstrip().removesuffix("*")) * 1)(*(() if initial is None else (initial,)))
        of, count = type_of(array[1]), int(array[2] or 0)
        if of is ctypes.c_char and not isinstance(initial, int) and initial is not None:
            return ctypes.create_string_buffer(bytes(initial), count or len(initial) + 1)
        values = () if initial is None or isinstance(initial, int) else tuple(initial)
        if not count:
            count = initial if isinstance(initial, int) else len(values)
        if isinstance(of, type) and issubclass(of, Pointer):
            pointers: Any = (ctypes.c_void_p * count)(*(address_of(value) for value in values))
            pointers.kept = values
            return pointers
        return (of * count)(*values)

    def callback(
        self, kind: Any, function: Callable[..., Any], onerror: Callable[..., Any] | None = None
    ) -> Any:
        """A C function that calls a Python one."""
        made = type_of(kind) if isinstance(kind, str) else kind

        def called(*arguments: Any) -> Any:
            try:
                return function(*(address_of(one) if isinstance(one, Pointer) else one for one in arguments))
            except BaseException as error:
                if onerror is None:
                    raise
                return onerror(type(error), error, error.__traceback__)

        return made(called)

    @property
    def errno(self) -> int:
        """What the last call through here left in C's errno, in this thread."""
        return ctypes.get_errno()

    @errno.setter
    def errno(self, number: int) -> None:
        ctypes.set_errno(number)


class _Library:
    """The process itself."""

    def __init__(self) -> None:
        self.opened = ctypes.CDLL(None, use_errno=True)

    def load_function(self, kind: Any, name: str) -> Any:
        """A function by its name, as it is called."""
        return kind((name, self.opened))


def load_library(path: None) -> _Library:
    """What the process has loaded already."""
    return _Library()


_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_memory.restype = ctypes.py_object
