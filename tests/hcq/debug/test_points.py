"""What a person says of points and places: packets by their fields, buffers by parts of names, ends of launches."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from hcq.debug.packets import FieldTest, PacketLog, checked
from hcq.debug.points import Point
from hcq.errors import UsageError
from hcq.nv.abi.host_methods import SemExecute
from tests.hcq.debug.rig import Bench

VENDORS = ("amd", "nv", "metal")


class DispatchThreadgroups(NamedTuple):
    """Stands for a packet."""

    grid_x: int
    kernel: str


@pytest.mark.parametrize(
    ("tests", "stops"),
    [
        ("grid_x=4", True),
        ("grid_x==4", True),
        ("grid_x!=4", False),
        ("grid_x>=0x4", True),
        ("grid_x<4", False),
        ("grid_x>3 grid_x<=4", True),
        ("grid_x>3 grid_x<4", False),
        ("kernel=matmul", True),
        ("kernel!=matmul", False),
        ("depth=0", False),
        ("depth!=0", False),
    ],
)
def test_a_point_at_a_packet_stops_where_all_its_fields_compare(tests: str, stops: bool) -> None:
    fields = tuple(map(FieldTest.read, tests.split()))
    point = Point(1, "packet", f"dispatch* {tests}", fields=fields)
    assert PacketLog().stops(point, DispatchThreadgroups(4, "matmul")) is stops


def test_a_field_compares_with_the_name_of_a_value() -> None:
    release, acquire = (
        SemExecute(operation=SemExecute.operation.enum[name]) for name in ("RELEASE", "ACQUIRE")
    )
    wanted = FieldTest.read("operation=release")
    assert wanted.holds(release)
    assert not wanted.holds(acquire)


@pytest.mark.parametrize("text", ["grid_x", "grid_x=", "=4", "grid_x>RELEASE", "grid_x=1x", "a b=1"])
def test_what_compares_no_field_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        FieldTest.read(text)


@pytest.mark.parametrize(
    ("kind", "field", "gpu", "said"),
    [
        ("DispatchDirekt", "", "amd:gfx1100", "Is it DispatchDirect"),
        ("dispatch_direct", "", "amd:gfx1100", "Is it DispatchDirect"),
        ("DispatchDirect", "dimx=1", "amd:gfx1100", "Fields: .*dim_x"),
        ("SEM_EXECUTE", "operator=1", "nv:sm_90", "Fields: .*operation"),
        ("DispatchDirect", "", "metal:m3", "DispatchThreadgroups|latest"),
    ],
)
def test_a_packet_that_no_emulated_gpu_has_is_refused_with_what_there_is(
    kind: str, field: str, gpu: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        checked(kind, tuple(map(FieldTest.read, field.split())), [gpu])


def test_types_and_fields_that_there_are_are_taken() -> None:
    checked("dispatch*", (FieldTest.read("dim_x>1"),), ["nv:sm_90", "amd:gfx1100"])
    checked("SetShReg", (FieldTest.read("COMPUTE_PGM_LO=1"),), ["amd:gfx1100"])


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_move_that_reaches_the_end_of_a_launch_stops_there(vendor: str) -> None:
    """In the present as in the past: nothing of the next launch runs before somebody says so."""
    for move in ["step 100000", *["finish"] * (vendor == "metal")]:
        bench = Bench(vendor, ["break kernel *", "continue", "delete all", move, "reverse-step", "continue"])
        bench.session.between("begin")
        bench.launch()
        bench.launch()
        record = bench.session.history.records[0]
        _, _, end, back = bench.face.stops[:4]
        assert end == ("the launch has ended", (1, record.ticks + 1))
        assert (1, 1) < back[1] <= (1, record.ticks)
        assert bench.session.history.count == 2


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_bare_line_with_a_condition_stops_only_where_it_holds(vendor: str) -> None:
    names = {
        "amd": "break text global_store if thread == 5",
        "nv": "break 26 if thread == 5",
        "metal": "break 8 if thread == 5",
    }
    bench = Bench(vendor, [names[vendor], "points", "continue", "print thread"])
    bench.session.between("begin")
    bench.launch()
    assert "if thread == 5" in bench.face.after("points")
    assert bench.face.after("print thread").startswith("thread = 5")


def test_a_buffer_may_be_named_by_its_first_letters_or_in_quotes() -> None:
    bench = Bench(
        "nv", ["break kernel *", "continue", 'mem "a b+4" 4', "mem a 4", "mem C 4", "mem Cc 4", "mem C0 4"]
    )
    names = bench.session.names
    names.allocated(bench.at["A"], 4096, "a b")
    names.allocated(bench.at["B"], 4096, "Cc")
    names.allocated(1 << 44, 16, "Cd")
    bench.session.between("begin")
    bench.launch()
    said = bench.face
    assert said.after('mem "a b+4" 4').startswith("a b (")
    assert said.after("mem a 4").startswith("a b (")
    assert said.after("mem C 4").startswith("C (")
    assert said.after("mem Cc 4").startswith("Cc (")
    assert said.after("mem C0 4").startswith("! 'C0' is no address")


def test_lines_are_refused_where_a_kernel_has_none() -> None:
    bench = Bench("amd", ["break kernel *", "continue", "stepl", "reverse-stepl", "where"])
    bench.session.between("begin")
    bench.launch()
    assert bench.face.after("stepl").startswith("! stepl: the kernel has no lines")
    assert bench.face.after("reverse-stepl").startswith("! reverse-stepl: the kernel has no lines")
    assert "step 1:" in bench.face.after("where")


def test_a_thread_that_the_grid_does_not_have_is_refused_as_such() -> None:
    bench = Bench("nv", ["break kernel *", "continue", "thread 32 0", "thread 0 32", "thread 31 31"])
    bench.session.between("begin")
    bench.launch()
    for line in ("thread 32 0", "thread 0 32"):
        assert bench.face.after(line) == "! there are blocks 0 to 31, of threads 0 to 31."
    assert bench.face.after("thread 31 31").startswith("warp 31, lane 31")
