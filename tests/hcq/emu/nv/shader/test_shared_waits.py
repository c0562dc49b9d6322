"""HCQ_SANITIZE=wait on NVIDIA: each planted fault is found with both its lines, and its right twin has no finding."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hcq.emu.nv.shader.checks import additions_of
from hcq.emu.nv.shader.errors import Deadlock
from hcq.emu.nv.shader.run import Kernel
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault
from tests.hcq.emu.nv.shader import test_bulk_ops as bulk
from tests.hcq.emu.nv.shader import test_thread_copies as copies
from tests.hcq.emu.nv.shader import test_warpgroup_ops as warpgroup
from tests.hcq.emu.nv.shader.running import Launch


def found_in(text: str, threads: int, *args: Any) -> list[KernelFault]:
    """What is found in a launch of two blocks. Each instruction has a line of its own."""
    text = re.sub(r";(?!\n)", ";\n", text)
    checks, launch = Checks(frozenset({"wait"})), Launch()
    kernel = Kernel(text, "k", additions=additions_of(checks))
    launch.run(kernel, 2, threads, *args, checks=checks)
    return list(checks.found.values())


def of_copies(lines: str) -> list[KernelFault]:
    return found_in(
        copies.HEAD + lines + copies.TAIL, 64, np.arange(1, 65, dtype=np.uint32), np.zeros(128, np.uint32)
    )


def of_bulk(lines: str, threads: int = 1) -> list[KernelFault]:
    return found_in(
        f"{bulk.HEAD} {lines} ret; }}", threads, np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    )


FIRST, SECOND, END = copies.FIRST, copies.SECOND, copies.END


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (FIRST + END + "cp.async.wait_group 0;", FIRST + END),
        (FIRST + "cp.async.wait_all;", FIRST),
        (
            FIRST + END + SECOND + END + "cp.async.wait_group 0;",
            FIRST + END + SECOND + END + "cp.async.wait_group 1;",
        ),
        (FIRST + SECOND + END + "cp.async.wait_group 0;", FIRST + END + SECOND + "cp.async.wait_group 0;"),
        (FIRST + "cp.async.wait_all;" + copies.STORE, FIRST + copies.STORE + "cp.async.wait_all;"),
        (FIRST + copies.PAST + "cp.async.wait_all;", FIRST + copies.BYTE + "cp.async.wait_all;"),
    ],
)
def test_a_thread_waits_for_the_group_of_what_it_copies(right: str, wrong: str) -> None:
    assert of_copies(right) == []
    (fault,) = of_copies(wrong)
    assert fault.rule == "async-copy-not-waited" and fault.space == "shared"
    assert (
        fault.sites[0].text.startswith("cp.async.ca")
        and fault.sites[0].who == "thread (0, 0, 0) of block (0, 0, 0)"
    )
    assert re.match(r"(ld|st)\.shared", fault.sites[1].text)
    assert "cp.async.wait_group" in fault.why and fault.times == 128


def test_other_threads_need_the_wait_of_the_thread_that_copies() -> None:
    """Each reads what its neighbour has copied, behind a barrier."""
    neighbour = "xor.b32 %y, %i, 1; shl.b32 %y, %y, 2; mov.u32 %x, tile; add.u32 %t, %x, %y;"
    right = f"{FIRST} cp.async.wait_all; bar.sync 0; {neighbour}"
    assert of_copies(right) == []
    (fault,) = of_copies(f"{FIRST} bar.sync 0; {neighbour} ld.shared.u32 %x, [%t]; cp.async.wait_all;")
    assert (fault.sites[0].who, fault.sites[1].who) == (
        "thread (1, 0, 0) of block (0, 0, 0)",
        "thread (0, 0, 0) of block (0, 0, 0)",
    )


INIT = "mbarrier.init.shared::cta.b64 [%m], 1;"
READ = "ld.shared.u32 %x, [%t+16];"
OTHER_PARITY = bulk.WAIT.replace("W", "V").replace("D", "E").replace("[%m], 0", "[%m], 1")
BROUGHT = f"{INIT} {bulk.TELL} {bulk.LOAD}"


@pytest.mark.parametrize(
    "wrong",
    [
        f"{BROUGHT} {READ}",
        f"{BROUGHT.replace('[%m], 1;', '[%m], 2;')} {OTHER_PARITY} {READ}",  # that phase was over before
        f"{BROUGHT} {READ} {bulk.WAIT}",
        f"{BROUGHT} mov.u32 %x, 1; st.shared.u32 [%t+16], %x; {bulk.WAIT}",
    ],
)
def test_what_a_bulk_copy_brings_is_there_when_its_phase_was_waited_for(wrong: str) -> None:
    assert of_bulk(f"{BROUGHT} {bulk.WAIT} {READ}") == []
    (fault,) = of_bulk(wrong)
    assert fault.rule == "async-copy-not-waited" and fault.address == 16
    assert fault.sites[0].text.startswith("cp.async.bulk") and "t.shared" in fault.sites[1].text.replace(
        "ld", "t"
    )


def test_each_phase_of_an_mbarrier_is_waited_for() -> None:
    twice = f"{BROUGHT} {bulk.WAIT} {READ} {bulk.TELL} {bulk.LOAD}"
    assert of_bulk(f"{twice} {OTHER_PARITY} {READ}") == []
    (fault,) = of_bulk(f"{twice} {READ} {OTHER_PARITY}")
    assert "phase" in fault.why
    with pytest.raises(Deadlock):  # the parity of the first
        of_bulk(f"{twice} {bulk.WAIT.replace('W', 'V').replace('D', 'E')} {READ}")


WRITE = "mov.u32 %x, 7; st.shared.u32 [%t], %x;"
FENCE = "fence.proxy.async.shared::cta;"


def test_what_a_bulk_copy_reads_stays_until_it_has_read() -> None:
    right = (
        f"{WRITE} {FENCE} {bulk.STORE} cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; {WRITE}"
    )
    assert of_bulk(right) == []
    (fault,) = of_bulk(right.replace("cp.async.bulk.wait_group.read 0;", ""))
    assert fault.rule == "async-copy-not-waited" and "wait_group.read" in fault.why
    assert (fault.sites[0].verb, fault.sites[1].verb) == ("copies from it", "writes it")
    (fault,) = of_bulk(right.replace("read 0", "read 1"))
    assert fault.sites[1].text.startswith("st.shared")


@pytest.mark.parametrize(
    "order",
    [
        "{write} {fence} {store}",
        "{write} {fence} bar.sync 0; @!%first bra O; {store} O:",
        "{write} bar.sync 0; @!%first bra O; {fence} {store} O:",  # of the thread that copies, behind the barrier
    ],
)
def test_a_fence_stands_between_a_write_and_what_the_async_proxy_reads(order: str) -> None:
    done = f"{bulk.DONE}"
    threads = 1 if "bar" not in order else 64
    right = order.format(write=WRITE, fence=FENCE, store=bulk.STORE + done)
    assert of_bulk(right, threads) == []
    (fault,) = of_bulk(right.replace(FENCE, ""), threads)
    assert fault.rule == "proxy-fence"
    assert fault.sites[0].text.startswith("st.shared") and fault.sites[1].text.startswith(
        "cp.async.bulk.global"
    )


def products(text: str) -> list[KernelFault]:
    a, b, d = np.zeros(8192, np.uint8), np.zeros(8192, np.uint8), np.zeros((128, 64), np.float32)
    return found_in(text, 128, a, b, d)


def product_kernel(a_registers: bool) -> str:
    a, b = warpgroup.Layout(64, "f16", "k", "128B"), warpgroup.Layout(16, "f16", "k", "128B")
    flags = "%one, 1, 1, 0" if a_registers else "%one, 1, 1, 0, 0"
    made: str = warpgroup.kernel(
        "m64n16k16",
        "f32.f16.f16",
        a.size_bytes,
        b.size_bytes,
        a.descriptor,
        b.descriptor,
        8,
        flags,
        a_registers,
    )
    return made


@pytest.mark.parametrize("a_registers", [False, True])
def test_registers_of_a_product_wait_for_its_group_and_stand_behind_a_fence(a_registers: bool) -> None:
    text = product_kernel(a_registers)
    assert products(text) == []
    for missing in ("wgmma.fence", "wgmma.wait_group"):
        wrong = re.sub(rf"{re.escape(missing)}[^;]*;", "", text)
        assert wrong != text
        found = products(wrong)
        assert {fault.rule for fault in found} == {"wgmma-not-waited"}
        assert f"no {missing}" in found[0].why
        assert any(site.text.startswith("wgmma.mma_async") for site in found[0].sites)


def test_the_matrices_of_a_product_need_the_fence_of_the_proxy() -> None:
    text = product_kernel(False)
    wrong = re.sub(r"fence\.proxy\.async[^;]*;", "", text)
    assert wrong != text
    found = products(wrong)
    assert {fault.rule for fault in found} == {"proxy-fence"}
    assert found[0].sites[1].text.startswith("wgmma.mma_async")
