"""How the trace page opens, and how one finds the way: time, findings, groups, the overview strip, uses of a buffer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hcq.command import Signal, Wait
from hcq.tools.trace.serve import PageServer
from hcq.trace.records import Kind
from tests.tools.trace.making import CELL, Maker
from tests.tools.trace.test_page import HOSTILE, Page
from tests.tools.trace.test_page import driver as driver  # fixtures of ours, too
from tests.tools.trace.test_page import page as page
from tests.tools.trace.test_page import recorded as recorded
from tests.tools.trace.test_page import serve as serve

pytestmark = pytest.mark.browser


def steps(count: int = 40) -> Maker:
    """A step of three submissions, again and again; each is slower than the one before. A program is compiled first."""
    made = Maker()
    made.device()
    made.alloc(CELL, name="gate").alloc(CELL + 64, 1 << 12, "weights")
    value = 0
    for at in range(count):
        for what in (Signal(CELL, at + 1), Wait(CELL, at + 1), Signal(CELL + 64, at + 1)):
            value = made.submit(what)
            start = made.at_ns
            made.times((value, start + 100, start + 1100 + 10 * at))
            made.at_ns += 2000
    return made


@pytest.fixture(scope="module")
def stepped(serve: Callable[[Path], PageServer], tmp_path_factory: pytest.TempPathFactory) -> PageServer:
    return serve(steps().write(tmp_path_factory.mktemp("steps") / "steps.hcqtrace"))


@pytest.fixture(scope="module")
def broken(serve: Callable[[Path], PageServer], tmp_path_factory: pytest.TempPathFactory) -> PageServer:
    """Signals that go backwards, in submissions that are named one by one."""
    made = Maker()
    made.device()
    made.alloc(CELL, name="gate")
    for value in (5, 4, 3, 2):
        made.submit(Signal(CELL, value))
    return serve(made.write(tmp_path_factory.mktemp("broken") / "broken.hcqtrace"))


def view(page: Page) -> list[float]:
    return list(page.script("import('./kit.js').then(kit => [kit.state.view.from, kit.state.view.until])"))


def strip(page: Page) -> tuple[float, float, float]:
    """Left and right edge of the overview's frame as drawn, and a height inside it."""
    left, top, wide = page.script(
        "(r => [r.left, r.top, r.width])(document.querySelector('#whole-canvas').getBoundingClientRect())"
    )
    end = page.script("import('./kit.js').then(kit => kit.state.trace.end)")
    room = wide - 112 - 12
    edges = [left + 112 + (at / end + 0.01) / 1.02 * room for at in view(page)]
    return min(max(edges[0], left + 112), left + wide - 20), min(edges[1], left + wide - 12), top + 30


def press(page: Page, selector: str) -> None:
    """A click on what stands there now: rows are made anew whenever the list is drawn."""
    page.see(f"document.querySelector({selector!r}) !== null")
    page.script("document.querySelector(arguments[0]).click()", selector)


def drag(page: Page, begin: float, end: float, y: float) -> None:
    page.mouse("mousePressed", begin, y, button="left", buttons=1, clickCount=1)
    for part in (0.5, 1.0):
        page.mouse("mouseMoved", begin + (end - begin) * part, y, button="left", buttons=1)
    page.mouse("mouseReleased", end, y, button="left", clickCount=1)


def test_the_page_opens_with_where_the_time_went(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.see("document.querySelectorAll('#time .share-row .number').length > 8")
    assert page.text("#time h2") == "Where the time went"
    assert {"one step", "mixed"} <= set(page.texts("#time .main a.what"))
    # what a queue did and its idle time fill its bar
    grow = page.script(
        "[...document.querySelectorAll('.stack i')].reduce((sum, x) => sum + Number(x.style.flexGrow), 0)"
    )
    assert grow == pytest.approx(1, abs=1e-6)
    shares = [
        float(text.split()[0])
        for text in page.texts("#time .main .share-row:not(.head) .number:nth-child(3)")
    ]
    assert shares and all(0 <= share <= 100 for share in shares)
    assert page.errors() == []


def test_a_kernel_of_the_opening_leads_to_its_code(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.see("document.querySelector('#time .main a.what') !== null")
    page.script(
        "[...document.querySelectorAll('#time .main a.what')].find(x => x.innerText === 'mixed').click()"
    )
    page.see("document.querySelector('#pane-kernel h2')?.innerText === 'mixed'")


def test_bars_are_as_long_as_their_shares(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.see("document.querySelectorAll('#time .room i').length > 2")
    widths = page.script(
        "[...document.querySelectorAll('#time .main .rows:last-child .room i')].map(x => parseFloat(x.style.width))"
    )
    assert widths == sorted(widths, reverse=True)


def test_findings_are_counted_by_severity_and_lead_to_their_submission(
    page: Page, broken: PageServer
) -> None:
    page.open(broken)
    page.see("document.querySelector('.finding') !== null")
    assert page.text("#findings h2") == "Findings"
    counts = page.texts("#findings .heading .level")
    assert counts and all(text.split()[1].rstrip("s") in ("error", "warning") for text in counts)
    assert sum(int(text.split()[0]) for text in counts) >= 3
    # above everything else that the pane shows
    tops = page.script(
        "['#findings', '#time'].map(x => document.querySelector(x).getBoundingClientRect().top)"
    )
    assert tops[0] < tops[1]
    page.script("document.querySelector('.finding').open = true")
    press(page, ".finding > p a")
    page.see("document.querySelector('#pane-packets h2')?.innerText.startsWith('CPU #')")


def test_a_step_that_repeats_is_one_row_that_opens(page: Page, stepped: PageServer) -> None:
    page.open(stepped)
    assert page.text("#submissions-title") == "120 submissions"
    assert page.texts(".group .times") == ["\u00d7 40"]
    assert page.texts(".submission") == []
    press(page, ".group")
    page.see("document.querySelectorAll('.submission').length === 3")
    assert page.texts(".submission .name") == ["#1", "#2", "#3"]
    press(page, ".stepper button:nth-of-type(2)")
    page.see("document.querySelector('.submission .name').innerText === '#4'")
    press(page, ".stepper button:nth-of-type(3)")  # the slowest is the last
    page.see("document.querySelector('.submission .name').innerText === '#118'")
    assert page.text(".stepper span") == "40 of 40"
    press(page, ".group")
    page.see("document.querySelectorAll('.submission').length === 0")
    page.click("#grouping button:last-child")
    page.see("document.querySelectorAll('.submission').length > 20")


def test_what_is_selected_elsewhere_turns_an_open_group_to_its_repetition(
    page: Page, stepped: PageServer
) -> None:
    page.open(stepped)
    press(page, ".group")
    page.see("document.querySelectorAll('.submission').length === 3")
    page.script("import('./kit.js').then(kit => kit.set('selected', 61))")
    page.see("document.querySelector('.submission[aria-selected=true] .name')?.innerText === '#62'")
    assert page.text(".stepper span") == "21 of 40"
    page.keys("j")
    page.see("document.querySelector('.submission[aria-selected=true] .name')?.innerText === '#63'")


def test_the_frame_of_the_overview_is_dragged_and_its_edges_too(page: Page, stepped: PageServer) -> None:
    page.open(stepped)
    page.keys("0", "w", "w", "w", "w")
    before = view(page)
    left, right, y = strip(page)
    drag(page, (left + right) / 2, (left + right) / 2 + 150, y)
    after = view(page)
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0], rel=1e-6)
    left, right, y = strip(page)
    drag(page, right, right - 60, y)
    smaller = view(page)
    assert smaller[0] == pytest.approx(after[0], rel=0.01)
    assert smaller[1] < after[1]
    page.mouse(
        "mousePressed", left - 100, y, button="left", buttons=1, clickCount=1
    )  # beside it: it comes there
    page.mouse("mouseReleased", left - 100, y, button="left", clickCount=1)
    assert view(page)[0] < smaller[0]
    assert page.ink("#whole-canvas") > 3


def test_typing_a_buffers_name_lists_what_touched_it_in_order(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.keys("/")
    page.keys("other", into="#search")
    page.see("document.querySelectorAll('#found li.use').length === 3")
    assert [text.split("\n") for text in page.texts("#found li.use")] == [
        ["read/write", "#1", "argument 0 of mixed"],
        ["read/write", "#2", "argument 0 of one step"],
        ["read", "#3", "source of a copy"],
    ]
    page.keys("\ue015", "\ue015", "\ue007", into="#search")  # the second use, inside a graph
    page.see("document.querySelector('#pane-packets .block .packet.lit') !== null")
    assert "one step(other" in page.text("#pane-packets .packet.lit")


def test_a_buffers_uses_are_a_view_of_their_own(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.keys("/")
    page.keys("out", into="#search")
    page.see("[...document.querySelectorAll('#found li')].some(x => x.innerText.startsWith('buffer'))")
    page.script(
        "[...document.querySelectorAll('#found li')].find(x => x.innerText.startsWith('buffer'))"
        ".dispatchEvent(new PointerEvent('pointerdown'))"
    )
    page.see("document.querySelectorAll('#pane-buffer .touch').length === 6")
    assert page.text("#pane-buffer h2") == "out"
    assert [text.split("\n")[1] for text in page.texts("#pane-buffer .touch")] == [
        "write", "read/write", "read/write", "write", "read/write", "read/write"
    ]  # fmt: skip
    page.script("document.querySelectorAll('#pane-buffer .touch')[3].click()")
    page.see("document.querySelector('#pane-packets .packet.lit')?.innerText.includes('Copy')")
    page.script("[...document.querySelectorAll('.buffers a')].find(x => x.innerText === 'gate').click()")
    page.see("document.querySelector('#pane-buffer h2')?.innerText === 'gate'")
    assert page.errors() == []


def test_compiling_has_a_colour_of_its_own_on_the_hosts_line(
    page: Page, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    made = Maker()
    made.device()
    first = made.submit()
    made.times((first, made.at_ns, made.at_ns + 5000))
    made.at_ns += 500_000
    code = {
        "device": 0,
        "name": HOSTILE,
        "entry": "k",
        "va": 0x5000,
        "args": None,
        "scratch_bytes": 0,
        "facts": {},
    }
    made.text(Kind.CODE, code, b"\x7fELF")
    second = made.submit()
    made.times((second, made.at_ns, made.at_ns + 5000))
    page.open(serve(made.write(tmp_path / "t")))
    assert "compiling" in page.text("#legend")
    page.see("document.querySelector('#time .aside')?.innerText.includes('compiling')")
    left, top, wide = page.script(
        "(r => [r.left, r.top, r.width])(document.querySelector('#lanes-canvas').getBoundingClientRect())"
    )
    page.mouse("mouseMoved", left + 112 + (wide - 124) / 2, top + 24 + 20)
    page.see("document.querySelector('#tip').innerText.startsWith('compiling, up to <img')")
    assert page.script("window.owned ?? null") is None
    assert page.script("document.querySelectorAll('img').length") == 0


def test_many_submissions_open_with_few_elements(
    page: Page, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    page.open(serve(steps(7000).write(tmp_path / "many")))
    page.see("document.querySelectorAll('#time .stack i').length > 0")
    assert page.texts(".group .times") == ["\u00d7 7,000"]
    press(page, ".group")
    page.click("#grouping button:last-child")
    page.see("document.querySelectorAll('.submission').length > 10")
    assert page.script("document.querySelectorAll('*').length") < 1500
    assert page.errors() == []
