"""docs/cpu-device.md says what the layouts say, and its C example runs."""

from __future__ import annotations

import array
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hcq.cpu import packets
from hcq.cpu.device import HOST_SPIN_NS, PROCESSOR_LONG_SPIN_NS, PROCESSOR_SPIN_NS, WORKER_SPIN_NS, CpuDevice
from hcq.layout import Packet

PAGE = (Path(__file__).parents[3] / "docs" / "cpu-device.md").read_text()


@pytest.mark.parametrize(
    "layout",
    [*packets.PACKETS.values(), packets.Group, packets.SignalCell, packets.Control],
    ids=lambda layout: layout.__name__,
)
def test_the_page_shows_every_layout_as_it_is(layout: type[Packet]) -> None:
    assert f"### {layout.__name__}\n\n{inspect.getdoc(layout)}\n\n{layout.table()}\n" in PAGE


def test_the_page_names_the_spin_times() -> None:
    spins = PROCESSOR_SPIN_NS, PROCESSOR_LONG_SPIN_NS, WORKER_SPIN_NS, HOST_SPIN_NS
    times = [str(spin // 1000) for spin in spins]
    sentence = " ".join(PAGE[PAGE.index("Waiting: ") :].split("\n\n")[0].split())
    assert [word for word in sentence.replace(",", "").replace(";", "").split() if word.isdecimal()] == times


def test_the_group_structure_of_the_page_has_the_fields_of_the_layout() -> None:
    text = PAGE[PAGE.index("struct hcq_group {") :]
    declared = re.findall(r"(\w+)[,;]", re.sub(r"/\*.*?\*/", "", text[: text.index("};")]))
    assert declared == [*packets.Group.fields]


def test_the_c_example_of_the_page_runs(four_threads: CpuDevice, compile_c: Callable[..., bytes]) -> None:
    source = next(part for part in PAGE.split("```c\n")[1:] if "void scale" in part).split("```")[0]
    program = four_threads.load(
        compile_c(source, "-c", "-O2"), "scale", args=("buffer", "buffer", "int", "float")
    )
    out, a = four_threads.alloc(4 * 100_000), four_threads.alloc(4 * 100_000)
    a.write(array.array("f", range(100_000)))
    four_threads.run(program, [out, a, 100_000, 0.5], grid=(-(-100_000 // 128), 1, 1))
    assert array.array("f", out.read()) == array.array("f", (n / 2 for n in range(100_000)))
