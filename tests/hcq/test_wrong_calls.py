"""A wrong call is told in the same words on every kind of device, before anything reaches the device, which goes on."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import hcq
from hcq.command import Dispatch
from hcq.device import Device
from hcq.memory import Buffer
from hcq.program import Program
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.gpu.kernels import image
from tests.hcq.nv.conftest import open_nv as open_nv


class Place(NamedTuple):
    """A device, and what calls are made with. `store` takes a buffer and an int of 64 bits."""

    device: Device
    store: Program
    out: Buffer

    def works(self) -> bool:
        self.device.queue().fill(self.out, 7).submit().wait()
        self.device.queue().dispatch(self.store, [self.out, 8]).submit().wait()
        return self.out.read(size_bytes=4) != bytes(4)


@pytest.fixture(params=["CPU", "AMD", "NV"])
def place(
    request: pytest.FixtureRequest,
    open_amd: Callable[..., Device],
    open_nv: Callable[..., Device],
    llvm_object: bytes,
) -> Place:
    if request.param == "CPU":
        device: Device = hcq.open("CPU")
        store = device.load(llvm_object, "functions", args=("buffer", "int"))
    else:
        device = open_amd() if request.param == "AMD" else open_nv()
        store = device.load(image(device), "store_at", args=("buffer", "int"))  # type: ignore[arg-type]
    return Place(device, store, device.alloc(4096, "out"))


NAN, INF = float("nan"), float("inf")
WRONG: dict[str, tuple[Callable[[Place], object], str]] = {
    # (what is called, what the error says on every device)
    "alloc(True)": (lambda p: p.device.alloc(True), "alloc: size_bytes=True; takes a whole number from 0"),
    "alloc(-1)": (lambda p: p.device.alloc(-1), "alloc: size_bytes=-1; takes"),
    "alloc(1.5)": (lambda p: p.device.alloc(1.5), "alloc: size_bytes=1.5; takes"),
    "alloc(None)": (lambda p: p.device.alloc(None), "alloc: size_bytes=None; takes"),
    "alloc(2**64)": (lambda p: p.device.alloc(2**64), "alloc: size_bytes=18446744073709551616; takes"),
    "alloc(10**5000)": (lambda p: p.device.alloc(10**5000), "alloc: size_bytes=a int; takes"),
    "alloc(8, name=3)": (lambda p: p.device.alloc(8, 3), "alloc: name=3; takes a string"),
    "signal(None)": (lambda p: p.device.signal(None), "signal: name=None; takes a string"),
    "graph(None)": (lambda p: p.device.graph(None), "graph: name=None; takes a string"),
    "load(None)": (lambda p: p.device.load(None, "x"), "load: None has no bytes"),
    "load(7)": (lambda p: p.device.load(7, "x"), "load: 7 has no bytes"),
    "load(entry=None)": (lambda p: p.device.load(b"", None), "load: entry=None; takes a string"),
    "load(args)": (lambda p: p.device.load(b"", "x", "buffer"), "args='buffer'; takes a sequence of strings"),
    "load(args=[1])": (lambda p: p.device.load(b"", "x", [1]), "args=1; takes a string"),
    "load(scratch)": (lambda p: p.device.load(b"", "x", scratch_bytes=-1), "scratch_bytes=-1; takes a whole"),
    "synchronize(nan)": (lambda p: p.device.synchronize(NAN), "synchronize: timeout_ms=nan; takes milliseconds"),
    "close('5')": (lambda p: p.device.close("5"), "close: timeout_ms='5'; takes milliseconds"),
    "write(str)": (lambda p: p.out.write("text"), r"write: 'text' has no bytes. Takes bytes"),
    "write(None)": (lambda p: p.out.write(None), r"write: None has no bytes"),
    "write(at nan)": (lambda p: p.out.write(b"abc", NAN), "write: offset=nan; takes a whole number"),
    "write(at True)": (lambda p: p.out.write(b"abc", True), "write: offset=True; takes a whole number"),
    "read(size 'x')": (lambda p: p.out.read(0, "x"), "read: size_bytes='x'; takes a whole number"),
    "read(too much)": (lambda p: p.out.read(0, 10**30), r"read\(offset=0\): 10{30} bytes from there do not lie in"),
    "read_into(bytes)": (lambda p: p.out.read_into(b"1234"), "read_into: the target must be contiguous and writable"),
    "read_into(None)": (lambda p: p.out.read_into(None), "read_into: None has no bytes"),
    "view(None)": (lambda p: p.out.view(None, 4), "view: offset=None; takes a whole number"),
    "buffer.wait(inf)": (lambda p: p.out.wait(INF), "wait: timeout_ms=inf; takes milliseconds, a number from 0 to"),
    "wait(nan)": (lambda p: done(p).wait(NAN), "wait: timeout_ms=nan; takes milliseconds"),
    "wait('5')": (lambda p: done(p).wait("5"), "wait: timeout_ms='5'; takes milliseconds"),
    "wait(True)": (lambda p: done(p).wait(True), "wait: timeout_ms=True; takes milliseconds"),
    "wait(-1)": (lambda p: done(p).wait(-1), "wait: timeout_ms=-1; takes milliseconds"),
    "signal.wait('1')": (lambda p: p.device.signal().wait("1"), r"signal.wait: value='1'; takes a whole number"),
    "signal.wait(1, inf)": (lambda p: p.device.signal().wait(1, INF), r"signal.wait: timeout_ms=inf; takes millis"),
    "signal.set(-1)": (lambda p: p.device.signal().set(-1), "signal.set: value=-1; takes a whole number from 0"),
    "signal.set(1.5)": (lambda p: p.device.signal().set(1.5), "signal.set: value=1.5; takes a whole number"),
    "queue.signal(-1)": (lambda p: signal(p, -1), "signal: value=-1; takes a whole number from 0 on"),
    "queue.signal(2**64)": (lambda p: signal(p, 2**64), "signal: value=18446744073709551616; takes a whole"),
    "queue.signal(1.5)": (lambda p: signal(p, 1.5), "signal: value=1.5; takes a whole number"),
    "queue.signal(None)": (lambda p: p.device.queue().signal(None, 1), "signal: takes a Signal, not None"),
    "queue.wait(None)": (lambda p: p.device.queue().wait(None, 1), "wait: takes a Signal, not None"),
    "queue.wait(-1)": (lambda p: p.device.queue().wait(p.device.signal(), -1), "wait: value=-1; takes a whole"),
    "copy(b, None)": (lambda p: p.device.queue().copy(p.out, None), "copy: takes a Buffer, not None"),
    "copy(None, b)": (lambda p: p.device.queue().copy(None, p.out), "copy: takes a Buffer, not None"),
    "copy(size 'x')": (lambda p: p.device.queue().copy(p.out, p.out, "x"), "copy: size_bytes='x'; takes a whole"),
    "copy(offset)": (lambda p: p.device.queue().copy(p.out, p.out, 4, 1.5), "copy: offset=1.5; takes a whole"),
    "fill('x')": (lambda p: p.device.queue().fill(p.out, "x"), "fill: value='x'; takes a whole number"),
    "fill(256)": (lambda p: p.device.queue().fill(p.out, 256), "fill: 256 does not fit 1 bytes"),
    "fill(3 bytes)": (lambda p: p.device.queue().fill(p.out, 1, value_bytes=3), "fill: value_bytes=3; a value has"),
    "fill(None)": (lambda p: p.device.queue().fill(None), "fill: takes a Buffer, not None"),
    "timestamp(None)": (lambda p: p.device.queue().timestamp(None), "timestamp: takes a Buffer, not None"),
    "dispatch(None)": (lambda p: p.device.queue().dispatch(None), "dispatch: takes a Program, not None. Make one"),
    "run('x')": (lambda p: p.device.run("x"), "dispatch: takes a Program, not 'x'"),
    "dispatch(args=None)": (lambda p: launch(p, None), "args=None; takes a list of a Buffer, an int or a float"),
    "dispatch(args=5)": (lambda p: launch(p, 5), "args=5; takes a list of a Buffer, an int or a float"),
    "dispatch(object)": (lambda p: launch(p, [p.out, None]), "argument 1 is None. An argument is a Buffer, an int or"),
    "dispatch([])": (lambda p: launch(p, []), "takes 2 arguments .*, got 0"),
    "dispatch(kind)": (lambda p: launch(p, [p.out, 1.5]), "argument 1 is a int, got 1.5"),
    "dispatch(2**64)": (lambda p: launch(p, [p.out, 2**64]), "argument 1 is 18446744073709551616; it does not fit 64"),
    "dispatch(-2**63-1)": (lambda p: launch(p, [p.out, -(2**63) - 1]), "argument 1 is -9223372036854775809; it does"),
    "dispatch(grid=0)": (lambda p: launch(p, [p.out, 1], grid=(0, 1, 1)), r"grid=\(0, 1, 1\); takes three whole"),
    "dispatch(grid=5)": (lambda p: launch(p, [p.out, 1], grid=5), "grid=5; takes three whole numbers from 1 to"),
    "dispatch(grid='abc')": (lambda p: launch(p, [p.out, 1], grid="abc"), "grid='abc'; takes three whole numbers"),
    "dispatch(grid=1.5)": (lambda p: launch(p, [p.out, 1], grid=(1.5, 1, 1)), r"grid=\(1.5, 1, 1\); takes three"),
    "dispatch(block=0)": (lambda p: launch(p, [p.out, 1], block=(0, 1, 1)), r"block=\(0, 1, 1\); takes three whole"),
    "dispatch(block=None)": (lambda p: launch(p, [p.out, 1], block=None), "block=None; takes three whole numbers"),
    "dispatch(claim)": (lambda p: launch(p, [p.out, 1], groups_per_claim="x"), "groups_per_claim='x'; takes a whole"),
    "dispatch(claim=-1)": (lambda p: launch(p, [p.out, 1], groups_per_claim=-1), "groups_per_claim=-1; takes a whole"),
    "graph.dispatch(None)": (lambda p: p.device.graph().dispatch(None), "dispatch: takes a Program, not None"),
    "graph.replay(5)": (lambda p: p.device.graph().replay(5), "replay of 'graph': 5; takes a dict"),
    "graph.submit()": (lambda p: p.device.graph().submit(), "graph 'graph': nothing was recorded"),
    "freed.write": (lambda p: freed(p).write(b"x"), r"freed, 64 bytes\).write: the buffer was freed"),
    "freed copy": (lambda p: p.device.queue().copy(p.out, freed(p)), r"freed, 64 bytes\).copy: the buffer was freed"),
    "freed dispatch": (lambda p: launch(p, [freed(p), 1]), r"freed, 64 bytes\) was freed; it has no memory any more"),
}  # fmt: skip


def done(p: Place) -> Any:
    return p.device.queue().fill(p.out).submit()


def signal(p: Place, value: Any) -> None:
    p.device.queue().signal(p.device.signal(), value).submit().wait()


def launch(p: Place, args: Any, **others: Any) -> None:
    p.device.queue().dispatch(p.store, args, **others).submit().wait()


def freed(p: Place) -> Buffer:
    buffer = p.device.alloc(64)
    buffer.free()
    return buffer


@pytest.mark.sampled(75)
@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_gives_the_same_error_on_every_kind_of_device(place: Place, call: str) -> None:
    act, message = WRONG[call]
    submitted = place.device.timeline.submitted
    with pytest.raises(hcq.UsageError) as refused:
        act(place)
    assert type(refused.value) is hcq.UsageError
    assert re.search(message, str(refused.value)), refused.value
    assert place.device.timeline.submitted <= submitted + 1  # the fill of done(), and nothing that is wrong
    assert place.works()


def test_numbers_of_other_libraries_are_numbers_on_every_kind_of_device(place: Place) -> None:
    np = pytest.importorskip("numpy")
    device, store, out = place
    part = device.alloc(np.int64(4096)).view(np.uint8(64), np.int32(64))
    device.queue().fill(part, np.uint8(5), np.int64(8), np.int16(8), np.int8(2)).submit().wait(
        np.float32(1000)
    )
    assert part.read(np.int64(8), np.int64(8)) == struct.pack("<4H", 5, 5, 5, 5)
    ones = np.ones(3, np.int64)
    device.queue().dispatch(store, [out, np.int64(16)], grid=ones, block=ones).submit().wait()
    device.queue().dispatch(store, (out, np.uint64(16)), grid=[1, 1, 1], block=[1, 1, 1]).submit().wait()


@pytest.mark.parametrize("number", [0, -1, 2**31 - 1, -(2**31), 2**32 - 1])
@pytest.mark.parametrize("place", ["AMD", "NV"], indirect=True)
def test_a_number_that_fits_its_parameter_as_signed_or_unsigned_is_passed(place: Place, number: int) -> None:
    local = "scratch" if place.device.arch.startswith("gfx") else "local"
    program = place.device.load(image(place.device), local)  # type: ignore[arg-type]
    queue = place.device.queue().dispatch(program, [place.out, number])
    (recorded,) = queue.commands
    assert isinstance(recorded, Dispatch)
    assert recorded.args == (place.out.address, number)


@pytest.mark.parametrize("place", ["AMD", "NV"], indirect=True)
def test_a_number_that_does_not_fit_its_parameter_is_refused_before_the_doorbell(place: Place) -> None:
    scale = place.device.load(image(place.device), "scale")  # type: ignore[arg-type]
    before = place.device.timeline.submitted
    for wrong in (2**32, -(2**31) - 1, 2**63, 10**30):
        with pytest.raises(
            hcq.UsageError, match=f"dispatch scale: argument 2 is {wrong}; it does not fit 32 bits"
        ):
            place.device.queue().dispatch(scale, [place.out, place.out, wrong, 1.0, 2.0])
    for wrong_float in (1e39, -3.5e38):
        with pytest.raises(hcq.UsageError, match=r"argument 3 is -?[\d.]+e\+3[89]; it does not fit 32 bits"):
            place.device.queue().dispatch(scale, [place.out, place.out, 1, wrong_float, 2.0])
    for fine in (INF, -INF, NAN, 1e-300, 3e38):
        place.device.queue().dispatch(scale, [place.out, place.out, 1, fine, fine])
    assert place.device.timeline.submitted == before


@pytest.mark.parametrize("place", ["AMD", "NV"], indirect=True)
def test_a_replay_refuses_what_does_not_fit_and_the_next_one_runs_with_its_own_values(place: Place) -> None:
    device, out = place.device, place.out
    scale = device.load(image(device), "scale")  # type: ignore[arg-type]
    source = device.alloc(256)
    source.write(struct.pack("<64f", *range(64)))
    graph = device.graph()
    count, factor = hcq_symbol("count", "int"), hcq_symbol("factor", "float")
    graph.dispatch(scale, [out, source, count, factor, 0.0], block=(64, 1, 1))
    for wrong in (
        {"count": 2**32, "factor": 1.0},
        {"count": 64, "factor": 1e39},
        {"count": 64, "factor": 10**400},
    ):
        graph.replay({"count": 64, "factor": 2.0}).wait()
        with pytest.raises(hcq.UsageError, match="it does not fit 32 bits"):
            graph.replay(wrong)
        out.write(bytes(256))
        graph.replay({"count": 64, "factor": 2.0}).wait()
        assert struct.unpack("<64f", out.read(size_bytes=256)) == tuple(2.0 * i for i in range(64))


@pytest.mark.parametrize("place", ["AMD", "NV"], indirect=True)
def test_a_replay_tells_zero_from_negative_zero(place: Place) -> None:
    device, out = place.device, place.out
    scale = device.load(image(device), "scale")  # type: ignore[arg-type]
    source = device.alloc(4)
    source.write(struct.pack("<f", 3.0))
    graph = device.graph()
    graph.dispatch(scale, [out, source, 1, hcq_symbol("factor", "float"), -0.0], block=(64, 1, 1))
    for factor, expected in [(0.0, 0), (-0.0, 0x80000000), (0.0, 0), (0.0, 0), (-0.0, 0x80000000)]:
        graph.replay({"factor": factor}).wait()
        assert struct.unpack("<I", out.read(size_bytes=4)) == (expected,)


def hcq_symbol(key: str, kind: str) -> Any:
    from hcq.graph import Symbol

    return Symbol(key, kind)


def test_every_kind_of_error_is_a_name_of_the_package() -> None:
    for name in ("UsageError", "DriverError", "DeviceFault", "WaitTimeout"):
        assert issubclass(getattr(hcq, name), hcq.HcqError)
