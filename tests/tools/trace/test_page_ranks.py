"""The page of several ranks and devices in a real browser: one timeline, on one clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcq.command import Copy, Indirect, Signal, Wait
from hcq.events.named_spans import Span
from hcq.events.ranks import Place
from hcq.tools.trace.serve import PageServer
from tests.tools.trace.making import CELL, Maker
from tests.tools.trace.test_page import WIDE, Page
from tests.tools.trace.test_page import driver as driver  # fixtures of ours, too
from tests.tools.trace.test_page import page as page

pytestmark = pytest.mark.browser

A, B = 0x20000, 0x30000


def rank(number: int, clock: str, begin: int) -> Maker:
    """Two devices with three steps: a replay, a copy to the other device, an all-reduce that a kernel half hides."""
    made = Maker(
        at_ns=begin, clock=clock, monotonic_ns=begin, host=f"node{number}", unix_ns=1, argv=["train.py"]
    )
    if number < 2:
        made.place(Place(number, 2, f"node{number}", 5000 - begin if number else 0, 300 * number))
    made.device("CPU")
    made.device("AMD", "gfx1100")
    made.alloc(CELL, name="gate").alloc(A, 4096, "a", device=0).alloc(B, 4096, "b", device=1)
    for value in (1, 3, 5):
        at = made.at_ns
        made.submit(Indirect(0x7000, 4, "step"), device=0, words=bytes(16))
        made.times((value, at + 2000, at + 12_000))
        made.submit(Copy(B, A, 4096), Signal(CELL, value), device=0, words=bytes(16))
        made.times((value + 1, at + 12_000, at + 16_000))
        made.submit(Wait(CELL, value), Indirect(0x7000, 4, "step"), device=1, words=bytes(16))
        made.times(((value + 1) // 2, at + 16_500, at + 24_000), device=1)
        made.span(Span("all_reduce", at + 20_000, at + 28_000, 1 << 16, (0, 1)))
        made.span(Span("save", at + 21_000, at + 25_000, lane="files"))
        made.at_ns = at + 30_000
    return made


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[PageServer]:
    paths = [
        str(rank(number, f"boot {number}", 1000 * (number + 1)).write(tmp_path / f"rank-{number}.hcqtrace"))
        for number in range(3)
    ]
    with PageServer(*paths) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield server
        server.shutdown()


def test_ranks_and_devices_stand_on_one_timeline(
    page: Page, ranks: PageServer, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page.look((WIDE[0], 1300), dark=False)
    page.open(ranks)
    assert "clocks are not aligned" in page.text("#file")
    assert page.texts("#pane-trace p.warning") == [
        one for one in page.texts("#pane-trace p") if "not aligned" in one
    ]
    assert "moved by 3000 ns to the clock of rank 0, give or take 300 ns" in page.text("#pane-trace")
    # of 8 us of each all-reduce 4 are beside the replay on the other device; 4 us of copies are beside nothing
    assert "communication 33 % hidden" in page.text("#legend")
    rows = page.texts("#pane-trace .talks tbody tr")
    assert [row.split("\t")[:3] for row in rows] == [
        ["rank 0 on node0", "3", "3"],
        ["rank 1 on node1", "3", "3"],
        ["process 7 on node2, not aligned", "3", "3"],
    ]
    assert all(row.endswith("33.3 %") for row in rows)
    lanes = page.script("[...document.querySelectorAll('#pane-trace table')][0].innerText")
    assert "AMD@rank1 main" in lanes
    assert "idle" in lanes
    assert page.ink("#lanes-canvas") > 10
    box = page.script("(r => [r.x, r.y])(document.querySelector('#lanes-canvas').getBoundingClientRect())")
    found = ""
    for x in range(150, 1300, 40):  # along the lane of collectives of the first rank
        page.mouse("mouseMoved", box[0] + x, box[1] + 24 + 26 + 10)
        found = page.text("#tip") if not page.script("document.querySelector('#tip').hidden") else ""
        if found:
            break
    assert found.splitlines()[0] == "all_reduce"
    assert "with 0, 1" in found
    page.keys("j", "f", "w", "0")
    page.keys("4")
    page.see("document.querySelector('#memory-canvas') !== null")
    assert "9 buffers" in page.text("#live-title")  # three of each process, at the same addresses
    gates = "[...document.querySelectorAll('#memory-list .what')].filter(one => one.innerText === 'gate')"
    page.see(f"{gates}.length === 3")
    folder = Path(request.config.getoption("--pictures") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    page.script("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert page.driver.save_screenshot(str(folder / "ranks-memory.png"))
    page.keys("1", "9")
    page.script("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert page.driver.save_screenshot(str(folder / "ranks.png"))
    assert page.errors() == []
