"""Two derivations, one answer: what the emulation works out by itself is what the driver works out by itself."""

from __future__ import annotations

import itertools

import pytest

from hcq.amd.abi.descriptor import KernelDescriptor
from hcq.amd.abi.descriptor import user_sgprs as places_of
from hcq.amd.chip import CHIPS as DRIVER_CHIPS
from hcq.amd.sizing import EOP_BYTES as DRIVER_EOP_BYTES
from hcq.amd.sizing import queue_sizes
from hcq.amd.topology import ROOT as DRIVER_ROOT
from hcq.amd.topology import node_of
from hcq.emu.amd.kfd_queues import EOP_BYTES, save_area
from hcq.emu.amd.kfd_topology import ROOT, make_nodes
from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.wave_start import USER_SGPRS, user_sgprs
from hcq.emu.amd.spec import CHIPS, MAX_BLOCK, MODELS, parse

# compute units, XCCs, arrays and arrays of an engine of parts that were sold
PARTS = {
    "gfx90a": (110, 1, 8, 1),  # one die of an MI250X
    "gfx942": (304, 8, 32, 1),  # MI300X
    "gfx950": (256, 8, 32, 1),  # MI350X
    "gfx1030": (80, 1, 8, 2),
    "gfx1100": (96, 1, 12, 2),
    "gfx1101": (60, 1, 6, 2),
    "gfx1102": (32, 1, 4, 2),
    "gfx1151": (40, 1, 4, 2),
    "gfx1200": (32, 1, 4, 2),
    "gfx1201": (64, 1, 8, 2),
}


# the same of parts that the driver knows and nobody emulates, with their SIMDs of a unit and KiB of LDS
NOT_EMULATED = {
    "gfx1034": (16, 1, 2, 2, 2, 64),
    "gfx1103": (12, 1, 2, 2, 2, 64),
    "gfx1150": (16, 1, 2, 2, 2, 64),
}


def test_what_is_emulated_the_driver_knows_too() -> None:
    assert set(CHIPS) == set(ISAS) == set(PARTS) < set(DRIVER_CHIPS)


@pytest.mark.parametrize("arch", CHIPS)
def test_a_chip_has_the_same_figures_in_the_driver_and_in_its_emulation(arch: str) -> None:
    own, driver = CHIPS[arch], DRIVER_CHIPS[arch]
    assert own.gfx_target_version == driver.gfx_target_version
    assert own.family == driver.family
    assert own.rsrc3 == driver.rsrc3
    assert own.wave_bytes_unit == driver.wave_bytes_unit
    assert own.has_architected_scratch == driver.has_architected_scratch
    assert own.copies is driver.copies
    assert own.copy_bytes >= driver.copy_bytes
    assert (own.lds_bytes, own.lds_granule) == (driver.lds_bytes, driver.lds_granule)
    assert driver.max_block == MAX_BLOCK


@pytest.mark.parametrize("arch", CHIPS)
@pytest.mark.parametrize("sold", [False, True], ids=["emulated", "sold"])
def test_a_compute_queue_needs_the_same_memory_by_both_rules(arch: str, sold: bool) -> None:
    (node,) = make_nodes([parse(f"amd:{arch}")])
    properties = node.properties()
    if sold:
        units, xccs, arrays, per_engine = PARTS[arch]
        properties |= {"simd_count": units * properties["simd_per_cu"], "num_xcc": xccs}
        properties |= {"array_count": arrays, "simd_arrays_per_engine": per_engine}
    own = save_area(properties)
    driver = queue_sizes(node_of(1, 1, properties, []), DRIVER_CHIPS[arch])
    area = own.bytes_of(properties["num_xcc"])
    assert (own.ctl_stack_bytes, own.save_bytes, own.debug_bytes, area) == driver
    assert EOP_BYTES == DRIVER_EOP_BYTES


@pytest.mark.parametrize("arch", NOT_EMULATED)
def test_so_does_one_of_a_part_that_is_not_emulated(arch: str) -> None:
    units, xccs, arrays, per_engine, per_unit, lds_kib = NOT_EMULATED[arch]
    chip = DRIVER_CHIPS[arch]
    properties = {
        "gfx_target_version": chip.gfx_target_version,
        "simd_count": units * per_unit,
        "simd_per_cu": per_unit,
        "num_xcc": xccs,
        "array_count": arrays,
        "simd_arrays_per_engine": per_engine,
        "lds_size_in_kb": lds_kib,
    }
    own = save_area(properties)
    assert (own.ctl_stack_bytes, own.save_bytes, own.debug_bytes, own.bytes_of(xccs)) == queue_sizes(
        node_of(1, 1, properties, []), chip
    )


def test_both_read_the_topology_at_the_same_place() -> None:
    assert ROOT == DRIVER_ROOT


def test_the_first_scalar_registers_hold_what_the_driver_puts_there() -> None:
    sizes = {"private_segment_buffer": 4, "private_segment_size": 1}
    values = {name: [index] * sizes.get(name, 2) for index, name in enumerate(USER_SGPRS)}
    for asked in itertools.product((0, 1), repeat=len(USER_SGPRS)):
        descriptor = KernelDescriptor(**{f"enable_sgpr_{name}": on for name, on in zip(USER_SGPRS, asked)})
        words, starts = user_sgprs(descriptor, values), places_of(descriptor)
        assert [name for name, on in zip(USER_SGPRS, asked) if on] == list(starts)
        assert all(words[at] == USER_SGPRS.index(name) for name, at in starts.items())
        assert len(words) == sum(len(values[name]) for name in starts)


# compute units of all XCCs, XCCs and PCI's number of parts that are sold
SOLD = {
    "mi210": (104, 1, 0x740F),
    "mi250": (104, 1, 0x740C),
    "mi300x": (304, 8, 0x74A1),
    "mi325x": (304, 8, 0x74A5),
    "mi350x": (256, 8, 0x75A0),
    "mi355x": (256, 8, 0x75A3),
    "rx6900xt": (80, 1, 0x73BF),
    "rx7900xtx": (96, 1, 0x744C),
    "rx9070xt": (64, 1, 0x7550),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_the_units_of_the_part_that_is_sold(model: str) -> None:
    (node,) = make_nodes([parse(f"amd:{model}")])
    properties = node.properties()
    units = properties["simd_count"] // properties["simd_per_cu"]
    assert (units, properties["num_xcc"], properties["device_id"]) == SOLD[model]
    assert parse(f"amd:{model}:cu=4").size.units == 4


def test_a_whole_part_may_be_named_behind_its_architecture() -> None:
    assert parse("amd:gfx942:mi300x") == parse("amd:mi300x")
    assert parse("amd:gfx950:mi355x:seed=2") == parse("amd:mi355x:seed=2")
