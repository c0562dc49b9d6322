"""cp.async: a thread's copies are in shared memory when it has waited for them, or when something is stored there."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import HEADER, run_ptx

HEAD = f"""{HEADER}
.visible .entry k(.param .u64 A, .param .u64 B) {{
.reg .b64 %a, %b, %w; .reg .b32 %i, %t, %x, %y; .reg .pred %p; .shared .align 16 .b8 tile[512];
ld.param.u64 %a, [A]; ld.param.u64 %b, [B]; mov.u32 %i, %tid.x;
mul.wide.u32 %w, %i, 4; add.u64 %a, %a, %w; add.u64 %b, %b, %w;
mov.u32 %t, tile; shl.b32 %x, %i, 2; add.u32 %t, %t, %x;
mov.u32 %x, 0; st.shared.u32 [%t], %x; st.shared.u32 [%t+256], %x;
"""
TAIL = """ld.shared.u32 %x, [%t]; ld.shared.u32 %y, [%t+256];
st.global.u32 [%b], %x; st.global.u32 [%b+256], %y; ret; }"""
FIRST = "cp.async.ca.shared.global [%t], [%a], 4; "
SECOND = "cp.async.ca.shared.global [%t+256], [%a], 4; "
END = "cp.async.commit_group; "


def run(lines: str) -> tuple[int, int]:
    """How many of 64 threads found their first and their second copy done."""
    a, b = np.arange(1, 65, dtype=np.uint32), np.zeros(128, np.uint32)
    run_ptx(HEAD + lines + TAIL, "k", 1, 64, a, b)
    done = (b.reshape(2, 64) == a).sum(axis=1)
    assert not b[np.concatenate([b[:64] != a, b[64:] != a])].any()  # the others found what was there before
    return int(done[0]), int(done[1])


@pytest.mark.parametrize(
    ("lines", "done"),
    [
        (FIRST + END + SECOND + END, (0, 0)),
        (FIRST + END + SECOND + END + "cp.async.wait_group 2;", (0, 0)),
        (FIRST + END + SECOND + END + "cp.async.wait_group 1;", (64, 0)),
        (FIRST + END + SECOND + END + "cp.async.wait_group 0;", (64, 64)),
        (FIRST + SECOND + END + "cp.async.wait_group 1;", (0, 0)),
        (FIRST + END + SECOND + "cp.async.wait_group 0;", (64, 0)),
        (FIRST + END + SECOND + "cp.async.wait_all;", (64, 64)),
        (FIRST + END + END + SECOND + "cp.async.wait_group 1;", (64, 0)),
        (f"setp.lt.u32 %p, %i, 40; @%p {FIRST} {END} @!%p bra E; cp.async.wait_group 0; E:", (40, 0)),
        (f"{FIRST} {END} {SECOND} {END} setp.lt.u32 %p, %i, 24; @%p cp.async.wait_group 0;", (24, 24)),
    ],
)
def test_a_copy_is_done_when_its_thread_has_waited(lines: str, done: tuple[int, int]) -> None:
    assert run(lines) == done


STORE = "mov.u32 %x, 77; st.shared.u32 [%t], %x; "
BYTE = "mov.u32 %x, 77; st.shared.u8 [%t+3], %x; "
PAST = "mov.u32 %x, 0; st.shared.u32 [%t+256], %x; "  # beside what is copied to
NEIGHBOUR = (
    "xor.b32 %y, %i, 1; shl.b32 %y, %y, 2; mov.u32 %t2, tile; add.u32 %t2, %t2, %y; st.shared.u32 [%t2], %y; "
)


@pytest.mark.parametrize(
    ("lines", "done"),
    [
        (FIRST + STORE, (64, 0)),
        (FIRST + END + STORE + "cp.async.wait_group 0;", (64, 0)),
        (FIRST + BYTE, (64, 0)),
        (FIRST + END + SECOND + END + STORE, (64, 0)),
        (FIRST + PAST, (0, 0)),
        (".reg .b32 %t2; " + FIRST + NEIGHBOUR, (64, 0)),
        (f"setp.lt.u32 %p, %i, 40; @%p {FIRST} mov.u32 %x, 0; st.shared.u32 [%t], %x;", (40, 0)),
        (f"{FIRST} setp.lt.u32 %p, %i, 24; mov.u32 %x, 77; @%p st.shared.u32 [%t], %x;", (24, 0)),
    ],
)
def test_what_is_stored_where_a_copy_is_under_way_is_lost(lines: str, done: tuple[int, int]) -> None:
    assert run(lines) == done


def test_what_is_stored_after_the_wait_stays() -> None:
    a, b = np.arange(1, 65, dtype=np.uint32), np.zeros(128, np.uint32)
    run_ptx(HEAD + FIRST + "cp.async.wait_all; " + STORE + TAIL, "k", 1, 64, a, b)
    assert b[:64].tolist() == [77] * 64
