"""The emulated operating system: words that ask for GPUs, and files that only it has."""

from __future__ import annotations

import dataclasses
import errno

import pytest

import hcq
from hcq import config
from hcq.backends import emulated
from hcq.emu.port import port_for
from hcq.errors import DriverError, UsageError


def test_words_name_vendors():
    assert emulated(("amd:gfx1100", "amd:gfx942:seed=1")) == {"AMD"}
    assert emulated(("amd:gfx1100", "nv:sm_90")) == {"AMD", "NV"}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("intel:xe", "no emulator for 'intel:xe'"),
        ("amd", "unknown architecture ''"),
        ("amd:gfx1", "unknown architecture 'gfx1'. Known: .*gfx1100"),
        ("amd:gfx1100:fast", "unknown option 'fast'. Options: seed=NUMBER"),
        ("amd:gfx1100:seed=x", "unknown option 'seed=x'"),
    ],
)
def test_a_word_that_means_nothing_is_refused_with_what_does(word: str, says: str):
    with pytest.raises(UsageError, match=says):
        port_for((word,))


def test_one_port_serves_all_devices_of_the_process():
    assert port_for(("amd:gfx1100",)) is port_for(("amd:gfx1100",))


def test_drivers_of_both_vendors_live_in_one_machine():
    port = port_for(("amd:gfx1100", "nv:sm_90"))
    for path in ("/dev/kfd", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"):
        port.close(port.open(path))
    assert port.kernel_log() == []


def test_other_files_are_the_real_systems():
    port = port_for(("amd:gfx1100",))
    assert b"MemTotal" in port.read_file("/proc/meminfo")
    fd = port.open("/dev/null")
    port.close(fd)
    with pytest.raises(DriverError) as error:
        port.read_file("/sys/devices/virtual/kfd/kfd/topology/nodes/9/gpu_id")
    assert error.value.errno == errno.ENOENT


def test_open_finds_an_emulated_gpu_and_leaves_the_cpu_alone():
    before = config.current()
    config.use(dataclasses.replace(before, emulate=("amd:gfx1100", "amd:gfx942")))
    try:
        one, two = hcq.open("AMD"), hcq.open("AMD:1")
        assert (one.arch, two.arch) == ("gfx1100", "gfx942")
        assert hcq.open("CPU").arch != "gfx1100"
        with pytest.raises(UsageError, match=r"AMD:2: the kernel driver shows 2 GPUs"):
            hcq.open("AMD:2")
        one.close()
        two.close()
    finally:
        config.use(before)
