"""On an emulated GPU with caches all results stay right, and without any one of the driver's acquires and releases not.

A mutation takes one of them out of the stream. At least one of the workloads then gives a wrong result, or none.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hcq import command
from hcq.amd.abi import aql, pm4
from hcq.amd.chip import Chip
from hcq.amd.device import AmdDevice
from hcq.amd.encode import COPY, Encoder, Piece, piece
from hcq.amd.launch import Launcher
from hcq.errors import HcqError
from hcq.layout import Packet
from tests.hcq.amd.conftest import each_queue
from tests.hcq.amd.kernels import compile_ir, image
from tests.hcq.gpu.workloads import BYTES, WORDS, filled, numbers
from tests.hcq.gpu.workloads import WORKLOADS as SHARED

Open = Callable[..., AmdDevice]

SCALAR = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
; out[i] = in[0] + 1: LLVM reads what all work-items read through the scalar cache
define amdgpu_kernel void @spread(ptr addrspace(1) %out, ptr addrspace(1) noalias readonly %in) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %x = load i32, ptr addrspace(1) %in
  %y = add i32 %x, 1
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %y, ptr addrspace(1) %p
  ret void
}
"""


# ------------------------------------------------------------ workloads: each asserts its results


def kernel_to_scalar(amd: AmdDevice) -> None:
    """A kernel reads as a scalar what vectors wrote."""
    spread, increment = (
        amd.load(compile_ir(SCALAR, amd.arch), "spread"),
        amd.load(image(amd.arch), "increment"),
    )
    a, b = amd.alloc(BYTES), amd.alloc(BYTES)
    a.write(filled(1))
    q = amd.queue()
    for _ in range(3):
        q.dispatch(spread, [b, a], block=(WORDS, 1, 1)).dispatch(increment, [a], block=(WORDS, 1, 1))
    q.dispatch(spread, [b, a], block=(WORDS, 1, 1)).submit().wait(timeout_ms=50_000)
    assert numbers(b.read()) == (5,) * WORDS


def new_code(amd: AmdDevice) -> None:
    """A program is loaded where another one was, while its instructions may still be held."""
    a = amd.alloc(BYTES)
    for by in (40, 41, 40):
        program = amd.load(compile_ir(FORTY.replace("i32 40", f"i32 {by}"), amd.arch), "forty")
        a.write(filled(0))
        amd.run(program, [a], block=(WORDS, 1, 1))
        assert numbers(a.read()) == (by,) * WORDS
        del program


FORTY = (
    SCALAR.replace("@spread", "@forty")
    .replace(", ptr addrspace(1) noalias readonly %in", "")
    .replace("  %x = load i32, ptr addrspace(1) %in\n  %y = add i32 %x, 1\n", "  %y = add i32 40, 0\n")
)


def wait_to_kernel(amd: AmdDevice) -> None:
    """The same with nothing but the wait between the kernels."""
    program, a, b = amd.load(compile_ir(SCALAR, amd.arch), "spread"), amd.alloc(BYTES), amd.alloc(BYTES)
    b.write(filled(1))
    go = amd.signal("go")
    q = amd.queue().dispatch(program, [a, b], block=(WORDS, 1, 1)).wait(go, 1)
    done = q.dispatch(program, [a, b], block=(WORDS, 1, 1)).submit()
    end = time.monotonic() + 50
    while amd.current_command() != 1 and time.monotonic() < end:
        time.sleep(0.001)
    b.host[:BYTES] = filled(60)
    go.set(1)
    done.wait(timeout_ms=50_000)
    assert numbers(a.read()) == (61,) * WORDS


WORKLOADS = [*SHARED, kernel_to_scalar, new_code, wait_to_kernel]


@each_queue
@pytest.mark.parametrize("workload", WORKLOADS[len(SHARED) :], ids=lambda workload: workload.__name__)
def test_results_are_right_behind_caches(
    open_amd: Open, arch: str, queue: str, workload: Callable[[AmdDevice], None]
) -> None:
    workload(open_amd(arch, queue=queue, options=":caches"))


@pytest.mark.parametrize("seed", range(4))
def test_results_are_right_behind_caches_in_any_order(open_amd: Open, seed: int) -> None:
    for workload in WORKLOADS:
        workload(open_amd("gfx1100", options=f":caches:seed={seed}"))


# ------------------------------------------------------------ mutations

Patch = pytest.MonkeyPatch


def no_packet() -> Packet:
    return pm4.NopWord()


def without_start(patch: Patch) -> None:
    patch.setattr(Encoder, "acquire", property(lambda self: piece(b"", "compute")))


def without_start_or_invalidating_releases(patch: Patch) -> None:
    """On gfx11 and gfx12 a release also forgets the L2, so that each of the two is enough."""
    without_start(patch)
    real = Chip.release

    def release(self: Chip, **fields: int) -> Packet:
        packet = real(self, **fields)
        kept = {name: value for name, value in packet.values.items() if not name.endswith("_inv")}
        return type(packet)(**kept)

    patch.setattr(Chip, "release", release)


def without_acquire_of_code(patch: Patch) -> None:
    patch.setattr(Encoder, "acquire_code", property(lambda self: piece(b"", "compute")))


def without_copy_start(patch: Patch) -> None:
    patch.setattr(Encoder, "acquire_copies", property(lambda self: piece(b"", COPY)))


def without_acquire_between_kernels(patch: Patch) -> None:
    patch.setattr(Chip, "acquire_next", lambda self: no_packet())


def without(field: str) -> Callable[[Patch], None]:
    """One cache is left out of the acquire between kernels."""

    def change(patch: Patch) -> None:
        real = Chip.acquire_next

        def acquire_next(self: Chip) -> Packet:
            packet = real(self)
            return type(packet)(**{**packet.values, field: 0})

        patch.setattr(Chip, "acquire_next", acquire_next)

    return change


def without_release(patch: Patch) -> None:
    """Every release forgets its caches: ends of submissions, signals, hand-overs."""
    patch.setattr(Chip, "release", Chip.store)


def without_release_of_hand_overs(patch: Patch) -> None:
    real = Encoder.ring_fence_signal

    def ring_fence_signal(self: Encoder, ring: str, number: int) -> Piece:
        if ring == COPY:
            return real(self, ring, number)
        store = self.chip.store(data_sel=pm4.DataSel.SEND_32_BIT_LOW, address=self.ring_fence_va, data=number)
        return self.compute(self._once(store.to_bytes()))

    patch.setattr(Encoder, "ring_fence_signal", ring_fence_signal)


def without_acquire_after_waits(patch: Patch) -> None:
    real = Encoder.encode

    def encode(self: Encoder, what: command.Command) -> Piece:
        return self.compute(self._wait(what)) if isinstance(what, command.Wait) else real(self, what)

    patch.setattr(Encoder, "encode", encode)


def without_invalidation_of_copies(patch: Patch) -> None:
    patch.setattr(Encoder, "_invalidate", lambda self: b"")


def without_write_back_of_copies(patch: Patch) -> None:
    patch.setattr(Encoder, "_write_back", lambda self: b"")


def without_fence(field: str) -> Callable[[Patch], None]:
    """An AQL dispatch without one of its fences."""

    def change(patch: Patch) -> None:
        real = Launcher._packet

        def packet(self: Launcher, *sizes: tuple[int, int, int]) -> aql.KernelDispatch:
            made = real(self, *sizes)
            return aql.KernelDispatch(**{**made.values, field: aql.FenceScope.NONE})

        patch.setattr(Launcher, "_packet", packet)

    return change


PM4_11 = ("gfx1100", "pm4")
MUTATIONS: list[tuple[str, tuple[str, str], Callable[[Patch], None]]] = [
    ("acquire at the start", PM4_11, without_start_or_invalidating_releases),
    ("acquire at the start", ("gfx942", "pm4"), without_start),
    ("acquire at the start", ("gfx1201", "pm4"), without_start_or_invalidating_releases),
    ("acquire at the start of copies", PM4_11, without_copy_start),
    ("acquire between kernels", PM4_11, without_acquire_between_kernels),
    ("acquire between kernels", ("gfx90a", "pm4"), without_acquire_between_kernels),
    ("glk_inv between kernels", PM4_11, without("glk_inv")),
    ("glv_inv between kernels", PM4_11, without("glv_inv")),
    ("gl1_inv between kernels", PM4_11, without("gl1_inv")),
    ("glv_inv between kernels", ("gfx1201", "pm4"), without("glv_inv")),
    ("sh_kcache_action_ena between kernels", ("gfx942", "pm4"), without("sh_kcache_action_ena")),
    ("tcl1_action_ena between kernels", ("gfx942", "pm4"), without("tcl1_action_ena")),
    ("release", PM4_11, without_release),
    ("release", ("gfx90a", "pm4"), without_release),
    ("release of hand-overs", PM4_11, without_release_of_hand_overs),
    ("acquire after waits", PM4_11, without_acquire_after_waits),
    ("acquire after waits", ("gfx942", "pm4"), without_acquire_after_waits),
    ("invalidation of copies", PM4_11, without_invalidation_of_copies),
    ("invalidation of copies", ("gfx1201", "aql"), without_invalidation_of_copies),
    ("write-back of copies", PM4_11, without_write_back_of_copies),
    ("acquire of code", ("gfx1100", "aql"), without_acquire_of_code),
    ("acquire fence of dispatches", ("gfx1100", "aql"), without_fence("acquire_fence_scope")),
    ("acquire fence of dispatches", ("gfx942", "aql"), without_fence("acquire_fence_scope")),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("what", "device", "mutate"), MUTATIONS, ids=[f"{what}-{'-'.join(where)}" for what, where, _ in MUTATIONS]
)
def test_without_it_a_result_is_wrong(
    open_amd: Open, patch: Patch, what: str, device: tuple[str, str], mutate: Callable[[Patch], None]
) -> None:
    mutate(patch)
    arch, queue = device
    wrong = []
    for workload in WORKLOADS:
        amd = open_amd(arch, queue=queue, options=":caches", timeout_ms=2000)
        try:
            workload(amd)
        except (AssertionError, HcqError):
            wrong.append(workload.__name__)
    assert wrong, f"nothing noticed that {what} is missing"


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> Patch:
    return monkeypatch
