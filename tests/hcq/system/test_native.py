"""The border to native code answers alike by cffi and by ctypes: memory, functions, callbacks, structures, errors."""

from __future__ import annotations

import array
import errno
import gc
import struct
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE, LinuxPort

KEPT = (
    native._backend,
    native._border,
    native._math_library,
    native._c_type,
    native._function_type,
    native._pointer_to,
)


def forget() -> None:
    for one in KEPT:
        one.cache_clear()


@pytest.fixture(params=["cffi", "ctypes"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The border by each of the two."""
    if request.param == "cffi":
        pytest.importorskip("_cffi_backend")
    else:
        monkeypatch.setitem(sys.modules, "_cffi_backend", None)
    forget()
    yield request.param
    monkeypatch.undo()
    forget()


def test_memory_is_mapped_written_and_read():
    port = LinuxPort()
    va = port.mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
    native.write(va + 1, bytearray(b"abc"), 3)
    native.write(va + 4, b"de", 2)
    assert native.read(va, 7) == b"\0abcde\0"
    view = native.view(va, 8)
    view[0] = 7
    assert (view.format, view.readonly, len(view)) == ("B", False, 8)
    view.cast("Q")[0] = 0x0102030405060708
    target = bytearray(4)
    native.read_into(va, target, 4)
    assert target == b"\x08\x07\x06\x05" and native.peek(va, 8) == native.read(va, 8)
    port.mprotect(va, 4096, PROT_READ)
    port.munmap(va, 8192)
    assert native.peek(va, 8) == b""


def test_a_view_keeps_its_owner_and_lets_it_go():
    class Owner:
        """What memory belongs to."""

    data = bytearray(b"0123456789")
    owner = Owner()
    gone = weakref.ref(owner)
    view = native.view(native.address_of(data), 10, owner)
    part = view[2:4].cast("H")
    del owner, view
    gc.collect()
    assert gone() is not None and part[0] == struct.unpack("<H", b"23")[0]
    del part
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "data", [b"bytes", bytearray(b"bytes"), memoryview(b"bytes"), array.array("B", b"bytes")]
)
def test_the_address_of_any_contiguous_buffer_is_that_of_its_bytes(data: Any):
    assert native.read(native.address_of(data), 5) == b"bytes"


def test_a_refused_call_leaves_its_errno():
    with pytest.raises(DriverError) as refusal:
        LinuxPort().mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS)
    assert refusal.value.errno == errno.EINVAL
    assert native.system_call(10**6) == -errno.ENOSYS


def test_functions_are_called_by_their_prototypes():
    assert native.function(native.symbol("abs"), "int(*)(int)")(-5) == 5
    assert (
        native.function(native.symbol("strtoull"), "uint64_t(*)(char *, void *, int)")(
            b"18446744073709551615", native.pointer(0), 10
        )
        == (1 << 64) - 1
    )
    floor = native.function(native.math_symbol("floor"), "double(*)(double)")
    assert floor(2.5) == 2.0
    assert native.math_symbol("no_such_function") == 0
    with pytest.raises(DriverError, match="no such symbol"):
        native.symbol("no_such_function")


def test_variables_and_arrays_are_filled_by_native_code():
    text = native.new("char[]", b"12 34")
    assert native.text_bytes(native.address(text)) == b"12 34"
    numbers = native.new("int[2]")
    scan = native.function(native.symbol("sscanf"), "int(*)(char *, char *, int *, void *)")
    end = native.pointer(native.address(numbers) + 4)
    assert scan(text, b"%d %d", numbers, end) == 2 and list(numbers) == [12, 34]
    assert list(native.new("uint64_t[]", (1, 2))) == [1, 2]
    assert list(native.new("int[]", 3)) == [0, 0, 0]
    handle = native.new_handle()
    assert handle[0] == 0
    words = native.new("char *[]", [text, text])
    assert native.text_at(words[1]) == "12 34"


def test_c_calls_python_back():
    order = native.callback(
        "int(*)(void *, void *)",
        lambda a, b: native.read(native.address(a), 1)[0] - native.read(native.address(b), 1)[0],
        lambda *error: 0,
    )
    data = bytearray(b"hello world")
    sort = native.function(native.symbol("qsort"), "void(*)(void *, size_t, size_t, void *)")
    sort(native.pointer(native.address_of(data)), len(data), 1, order)
    assert data == bytearray(sorted(b"hello world"))


def test_what_a_callback_raises_is_told_and_c_gets_a_number_instead():
    told = []

    def fails(number: int) -> int:
        raise KeyError(number)

    def failed(kind: type[BaseException], error: BaseException, trace: object) -> int:
        told.append((kind, error.args, trace is not None))
        return 41

    made = native.callback("int(*)(int)", fails, failed)
    assert native.function(native.address(made), "int(*)(int)")(3) == 41
    assert told == [(KeyError, (3,), True)]


def test_errno_is_what_a_callback_leaves_there():
    def leaves(number: int) -> int:
        native.set_errno(number)
        return -1

    made = native.callback("int(*)(int)", leaves, lambda *error: 0)
    assert native.function(native.address(made), "int(*)(int)")(errno.EPROTO) == -1
    assert native.errno() == errno.EPROTO


def test_encoded_functions_take_numbers_structures_and_bytes():
    seen = []

    def answer(*given: Any) -> int:
        seen.append(given[:-1])
        return 9

    kept = native.encoded_callback("Q@:Qd{Size=QQ}", lambda *given: answer(*given) + given[4].field1)
    call = native.encoded_function(native.address(kept), "Q@:Qd{Size=QQ}")
    assert call(0x1000, 0x2000, 5, 0.5, (3, 4)) == 13
    assert [native.address(one) for one in seen[0][:2]] == [0x1000, 0x2000] and seen[0][2:] == (5, 0.5)
    length = native.encoded_function(native.symbol("strlen"), "Q*")
    assert length(b"four\0") == 4 and length(bytearray(b"seven77\0")) == 7
    with pytest.raises(DriverError, match="not a type encoding"):
        native.encoded_function(native.symbol("strlen"), "Q%")


def test_libraries_are_opened_and_asked():
    handle = native.library("libc.so.6")
    assert handle and native.library_symbol(handle, "getpid") and not native.library_symbol(handle, "no_such")
    assert native.library("/no/such/library.so") == 0
