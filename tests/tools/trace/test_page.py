"""The page of hcq-trace serve in a real browser: what a person sees, clicks and types.

`pytest -m browser --pictures DIR` keeps pictures of every view in both colour schemes, to be looked at.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq.command import Signal, Wait
from hcq.performance import roofline
from hcq.tools.trace.serve import PageServer
from hcq.trace.records import Kind
from tests.browser import Tab, browser
from tests.tools.trace.making import CELL, PRODUCT, PROGRAM, Maker, record

pytestmark = pytest.mark.browser

WIDE, NARROW = (1400, 900), (900, 700)
HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>\u202e'


class Page(Tab):
    """The page of a trace."""

    def open(self, server: PageServer, address: str = "") -> None:
        super().open(server.url + address)

    def ink(self, selector: str) -> int:
        """How many different colours a canvas shows: 1 is an empty one."""
        return int(
            self.script(
                "(canvas => new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, "
                "canvas.height).data.buffer)).size)(document.querySelector(arguments[0]))",
                selector,
            )
        )


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture
def page(driver: Any) -> Page:
    made = Page(driver)
    made.look(WIDE, dark=False)
    return made


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[Path], PageServer]]:
    servers = []

    def start(path: Path) -> PageServer:
        servers.append(PageServer(str(path)))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.02}).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def recorded(
    serve: Callable[[Path], PageServer], kernels: Path, tmp_path_factory: pytest.TempPathFactory
) -> PageServer:
    """PROGRAM, with timestamps around its kernels."""
    path = tmp_path_factory.mktemp("page") / "run.hcqtrace"
    return serve(record(PROGRAM, path, str(kernels), options="", environment=["HCQ_PROFILE=1"]))


@pytest.fixture(scope="module")
def two(serve: Callable[[Path], PageServer], tmp_path_factory: pytest.TempPathFactory) -> PageServer:
    """Two devices that wait for each other, the last time for ever."""
    made = Maker()
    made.device("CPU")
    made.device("CPU:1")
    made.alloc(CELL, name="gate").alloc(CELL + 64, 1 << 16, "weights")
    for value in range(1, 6):
        at = made.at_ns
        made.submit(Signal(CELL, value))
        made.submit(Wait(CELL, value), device=1)
        made.times((value, at + 3000, at + 9000)).times((value, at + 9500, at + 12000), device=1)
        made.at_ns += 10_000
    made.submit(Wait(CELL, 99), device=1)
    made.free(CELL + 64)
    return serve(made.write(tmp_path_factory.mktemp("two") / "two.hcqtrace"))


def test_the_page_shows_the_whole_trace(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    assert "run.hcqtrace" in page.script("document.title")
    assert page.text("#submissions-title") == "4 submissions"
    assert [row.split("\n")[0] for row in page.texts(".submission")] == ["#1", "#2", "#3", "#4"]
    assert page.ink("#lanes-canvas") > 10
    assert page.ink("#whole-canvas") > 3
    page.see("document.body.innerText.includes('No validation rule has anything to say')")
    assert page.errors() == []


def test_a_click_on_a_bar_selects_its_submission(page: Page, two: PageServer) -> None:
    page.open(two)
    page.keys("j", "j", "j", "f")
    page.see("document.querySelector('#pane-packets h2')?.innerText === 'CPU #2'")
    box = page.script(
        "(r => [r.left, r.top, r.width, r.height])(document.querySelector('#lanes-canvas').getBoundingClientRect())"
    )
    x, y = box[0] + 112 + (box[2] - 124) * 0.8, box[1] + 24 + 26 + 36 + 16
    page.mouse("mouseMoved", x, y)
    page.see("!document.querySelector('#tip').hidden")
    assert "CPU:1 #2" in page.text("#tip") or "CPU:1 #1" in page.text("#tip")
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    page.mouse("mouseReleased", x, y, button="left", clickCount=1)
    page.see("document.querySelector('#pane-packets h2')?.innerText.startsWith('CPU:1')")


def test_packets_open_to_fields_and_words(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.keys("j")
    page.see("document.querySelectorAll('.packet').length >= 4")
    page.click(".packet")
    assert page.text(".fields .words").split()[0] == "0"
    assert "opcode" in page.text(".fields table")
    assert "out" in page.text(".fields .named")
    page.script("document.querySelector('.fields tr').dispatchEvent(new PointerEvent('pointerenter'))")
    assert page.script("document.querySelectorAll('.words .lit').length") == 1
    assert "out" in page.text(".buffers")


def test_a_graph_shows_its_packets_inside(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.keys("j", "j")
    page.see("document.querySelectorAll('.block .packet').length > 0")
    assert any("one step(other" in text for text in page.texts(".block .packet"))
    assert any("µs" in text or "ns" in text for text in page.texts(".block .took"))


def test_a_kernels_name_leads_to_its_machine_code_and_back_to_its_submissions(
    page: Page, recorded: PageServer
) -> None:
    page.open(recorded)
    page.keys("j")
    page.see("document.querySelector('.packet .kernel-name') !== null")
    page.click(".packet .kernel-name")
    page.see("document.querySelectorAll('#pane-kernel .code .line').length > 2")
    assert page.text("#pane-kernel h2") == "one step"
    page.click("#pane-kernel .title button:last-child")
    page.see("document.querySelector('#submissions-title').innerText === '3 of 4 submissions'")
    assert page.text("#focus span") == "launches one step"
    page.keys("\ue00c")  # Escape
    page.see("document.querySelector('#submissions-title').innerText === '4 submissions'")


@pytest.fixture(scope="module")
def counted(serve: Callable[[Path], PageServer], tmp_path_factory: pytest.TempPathFactory) -> PageServer:
    """A product that an emulated GPU counted, and a kernel that nobody did."""
    made = Maker()
    made.device("NV", arch="sm_90")
    made.counted(PRODUCT)
    code = {
        "device": 0,
        "name": "plain",
        "entry": "k",
        "va": 0x9000,
        "args": None,
        "scratch_bytes": 0,
        "facts": {},
    }
    made.text(Kind.CODE, code, b"\x7fELF")
    return serve(made.write(tmp_path_factory.mktemp("counted") / "counted.hcqtrace"))


def show_counters(page: Page, kernel: int) -> None:
    page.keys("3")
    page.see("document.querySelector('#pane-kernel .kernel-name') !== null")
    page.script(f"[...document.querySelectorAll('#pane-kernel .kernel-name')][{kernel}].click()")
    page.see("document.querySelector('#pane-kernel .texts') !== null")
    page.click("#pane-kernel .texts [role=tab]:nth-child(4)")


def test_a_kernels_counters_are_bars_of_what_bounds_it_on_the_chip_that_is_chosen(
    page: Page, counted: PageServer
) -> None:
    page.open(counted)
    show_counters(page, 0)
    page.see("document.querySelectorAll('.counters .bar').length > 4")
    expected = roofline.predict(PRODUCT, "h100")
    assert page.texts(".counters .bar .what") == [one.what for one in expected.bounds]
    assert page.texts(".counters .bar small") == [one.text() for one in expected.bounds]
    widths = page.script(
        "[...document.querySelectorAll('.counters .bar i')].map(x => x.getBoundingClientRect().width)"
    )
    assert widths == sorted(widths, reverse=True)
    assert widths[1] / widths[0] == pytest.approx(
        expected.bounds[1].seconds / expected.floor_seconds, abs=0.01
    )
    assert page.text(".counters .summary") == expected.summary()
    assert page.texts(".counters .change li") == list(expected.notes)
    page.script(
        "(choose => { choose.value = 'rtx4090'; choose.dispatchEvent(new Event('change')); })"
        "(document.querySelector('.counters select'))"
    )
    other = roofline.predict(PRODUCT, "rtx4090")
    page.see(f"document.querySelector('.counters .summary').innerText === {json.dumps(other.summary())}")
    assert page.script("document.querySelector('.counters select').value") == "rtx4090"
    assert page.errors() == []


def test_a_kernel_without_counters_says_how_to_get_them(page: Page, counted: PageServer) -> None:
    page.open(counted)
    show_counters(page, 1)
    page.see("document.querySelector('.counters')?.innerText.includes('HCQ_PROFILE=counters')")
    assert page.errors() == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_counters_fit_the_window(
    page: Page,
    counted: PageServer,
    size: tuple[int, int],
    dark: bool,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    folder = Path(request.config.getoption("--pictures") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    page.look(size, dark)
    page.open(counted)
    show_counters(page, 0)
    page.see("document.querySelectorAll('.counters .bar').length > 4")
    assert page.script("document.documentElement.scrollWidth <= innerWidth")
    assert page.script(
        "[...document.querySelectorAll('.counters *')].every(one => one.getBoundingClientRect().right <= innerWidth)"
    )
    assert page.driver.save_screenshot(
        str(folder / f"counters-{'dark' if dark else 'light'}-{size[0]}x{size[1]}.png")
    )


def test_the_memory_map_names_what_is_live_and_a_buffer_its_users(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.keys("4")
    page.see("document.querySelectorAll('#memory-list .span').length > 3")
    assert page.ink("#memory-canvas") > 3
    names = page.texts("#memory-list .what")
    assert {"out", "other", "gate"} <= set(names)
    page.script(
        "[...document.querySelectorAll('#memory-list .span')].find(x => x.innerText.includes('gate')).click()"
    )
    page.see("document.querySelector('#focus span').innerText === 'uses gate'")
    assert page.text("#submissions-title") == "1 of 4 submissions"


def test_the_memory_map_follows_the_moment(page: Page, two: PageServer) -> None:
    page.open(two)
    page.keys("4")
    page.see("document.querySelector('#memory-list')?.innerText.includes('weights')")
    canvas = "document.querySelector('#lanes-canvas').getBoundingClientRect()"
    right, top = page.script(f"[{canvas}.right - 14, {canvas}.top + 8]")
    page.mouse("mousePressed", right, top, button="left", clickCount=1)
    page.mouse("mouseReleased", right, top, button="left", clickCount=1)
    page.see("!document.querySelector('#memory-list').innerText.includes('weights')")


def test_search_finds_with_the_keyboard_alone(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.keys("/")
    page.keys("mixed", into="#search")
    page.see("document.querySelector('#found li[aria-selected=true]')?.innerText.includes('mixed')")
    page.keys("\ue007", into="#search")  # Enter
    page.see("document.querySelector('#pane-kernel h2')?.innerText === 'mixed'")
    page.keys("/")
    page.script("document.querySelector('#search').select()")
    page.keys("zzz", into="#search")
    page.see("document.querySelector('#found').innerText.includes('Nothing is called')")


def test_wheel_and_keys_move_the_time_that_is_shown(page: Page, two: PageServer) -> None:
    view = "import('./kit.js').then(kit => kit.state.view.until - kit.state.view.from)"
    page.open(two)
    page.keys("0")
    whole = page.script(view)
    left, top = page.script(
        "(r => [r.left + 600, r.top + 60])(document.querySelector('#lanes-canvas').getBoundingClientRect())"
    )
    page.mouse("mouseWheel", left, top, deltaX=0, deltaY=-400)
    page.see("true")
    deadline = time.monotonic() + 50
    while page.script(view) >= whole * 0.9:
        assert time.monotonic() < deadline
    page.keys("0")
    assert page.script(view) == pytest.approx(whole)
    page.keys("w")
    assert page.script(view) == pytest.approx(whole * 0.7)


def test_a_wait_that_nobody_ends_is_the_first_thing_one_reads(page: Page, two: PageServer) -> None:
    page.open(two)
    assert "waits for gate >= 99" in page.text("#pane-trace .warning")
    page.click("#pane-trace .warning a")
    page.see("document.querySelector('#pane-packets .facts')?.innerText.includes('nobody signals it')")


def test_an_address_can_be_kept_and_opened_again(page: Page, recorded: PageServer) -> None:
    page.open(recorded, "#tab=packets&submission=2")
    page.see("document.querySelector('#pane-packets h2')?.innerText === 'CPU #3'")
    page.keys("j")
    page.see("location.hash.includes('submission=3')")


def test_help_opens_and_closes_with_keys(page: Page, recorded: PageServer) -> None:
    page.open(recorded)
    page.keys("?")
    page.see("document.querySelector('#help').open")
    assert "next, previous submission" in page.text("#help")
    page.keys("\ue00c", into="#help")
    page.see("!document.querySelector('#help').open")


def test_names_out_of_a_strangers_trace_stay_text(
    page: Page, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    made = Maker()
    made.device("CPU")
    made.device("CPU:1", arch=HOSTILE)
    made.alloc(CELL, name=HOSTILE)
    code = {
        "device": 0,
        "name": HOSTILE,
        "entry": HOSTILE,
        "va": 0x5000,
        "args": [HOSTILE],
        "scratch_bytes": 0,
    }
    made.text(Kind.CODE, {**code, "facts": {"source": HOSTILE, HOSTILE: HOSTILE}}, b"\x7fELF")
    made.counted(
        dataclasses.replace(PRODUCT, kernel=HOSTILE, matrix_flops={HOSTILE: 7}, uncounted={HOSTILE: 1}),
        loads=False,
    )
    made.submit(Wait(CELL, 1))
    made.text(Kind.FAULT, {"device": 0, "what": HOSTILE, "why": HOSTILE})
    server = serve(made.write(tmp_path / "<img src=x onerror=window.owned=1>.hcqtrace"))
    page.open(server)
    page.keys("j")
    page.see("document.querySelectorAll('.packet').length > 0")
    page.click(".packet")
    page.keys("3")
    page.see("document.querySelector('#pane-kernel .kernel-name') !== null")
    page.click("#pane-kernel .kernel-name")
    page.see("document.querySelector('#pane-kernel .texts') !== null")
    page.click("#pane-kernel .texts [role=tab]:nth-child(2)")
    page.see("document.querySelector('#pane-kernel pre') !== null")
    page.click("#pane-kernel .texts [role=tab]:nth-child(4)")
    page.see("document.querySelector('.counters .bar') !== null")
    page.keys("4")
    page.see("document.querySelectorAll('#memory-list .span').length > 0")
    page.keys("/")
    page.keys("img", into="#search")
    page.see("document.querySelectorAll('#found li').length > 1")
    assert page.script("window.owned ?? null") is None
    assert page.script("document.querySelectorAll('img, body script').length") == 0
    assert "\u202e" not in page.script("document.body.textContent")
    assert "<img src=x" in page.text("#found")


def test_a_trace_without_submissions_says_how_to_make_one(
    page: Page, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    made = Maker()
    made.device()
    page.open(serve(made.write(tmp_path / "t")))
    assert "hcq-trace record" in page.text("#pane-trace")
    for key, pane in (("2", "packets"), ("3", "kernel"), ("4", "memory"), ("5", "buffer")):
        page.keys(key)
        page.see(f"document.querySelector('#pane-{pane} .empty') !== null")
    assert page.errors() == []


def test_twenty_thousand_submissions_stay_quick(
    page: Page, serve: Callable[[Path], PageServer], tmp_path: Path
) -> None:
    made = Maker()
    made.device()
    for value in range(1, 20_001):
        made.submit()
        made.times((value, made.at_ns, made.at_ns + 1500))
    page.open(serve(made.write(tmp_path / "t")))
    assert page.script("document.querySelectorAll('.submission').length") < 100
    frame = page.script(
        "new Promise(done => { const from = performance.now(); document.body.dispatchEvent(new KeyboardEvent("
        "'keydown', {key: 'w', bubbles: true})); requestAnimationFrame(() => setTimeout(() => "
        "done(performance.now() - from))); })"
    )
    assert frame < 500
    assert page.texts(".group .times") == ["\u00d7 20,000"]
    page.click("#grouping button:last-child")
    page.script("document.querySelector('#submissions-list').scrollTop = 1e9")
    page.see("[...document.querySelectorAll('.submission .name')].some(one => one.innerText === '#20000')")


# a view, the clicks that lead to it from where the page opens, and what is seen there
VIEWS = {
    "where the time went": ([], "#pane-trace", "Where the time went"),
    "findings of lint": ([], "#pane-trace", "validation rule"),
    "packets of a submission": ([".submission"], "#pane-packets", "CPU #1"),
    "a packet's fields and words": ([".submission", ".packet"], ".fields table", "opcode"),
    "kernels": (["[data-tab=kernel]"], "#pane-kernel", "2 kernels"),
    "a kernel's code": (["[data-tab=kernel]", "#pane-kernel tbody tr a"], "#pane-kernel", "object"),
    "memory": (["[data-tab=memory]"], "#pane-memory", "live at"),
    "a buffer on the memory map": (["[data-tab=memory]", "#memory-list .span"], "#focus", "uses"),
    "everything that touched a buffer": (
        ["[data-tab=buffer]", "#pane-buffer .span"],
        "#pane-buffer",
        "touched",
    ),
    "the graph of a step": (["[data-tab=step]"], "#pane-step", "commands"),
    "what a box of the graph reads and writes": (
        ["[data-tab=step]", ".step-node.step-kernel"],
        ".step-beside",
        "writes",
    ),
    "keys and colours": (["#help-button"], "#help", "Keys"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_reached_in_two_clicks(page: Page, recorded: PageServer, view: str) -> None:
    clicks, where, says = VIEWS[view]
    assert len(clicks) <= 2
    page.open(recorded)
    for selector in clicks:
        page.see(f"document.querySelector('{selector}') !== null")
        click = "dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
        page.script(f"document.querySelector(arguments[0]).{click}", selector)
    page.see(
        f"[...document.querySelectorAll('{where}')].some(one => one.innerText.toLowerCase().includes('{says.lower()}'))"
    )
    assert page.errors() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_is_cut_off_in_any_view(
    page: Page,
    recorded: PageServer,
    size: tuple[int, int],
    dark: bool,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    folder = Path(request.config.getoption("--pictures") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    page.look(size, dark)
    page.open(recorded)
    page.keys("j", "j", "f")
    page.see("document.querySelectorAll('.packet').length > 0")
    page.script("import('./kit.js').then(kit => kit.set('buffer', 0))")
    for key, name in (("1", "trace"), ("2", "packets"), ("3", "kernel"), ("4", "memory"), ("5", "buffer")):
        page.keys(key)
        page.see(f"document.querySelector('#pane-{name}').innerText.length > 40")
        time.sleep(0.1)  # canvases draw with the next frame
        assert page.script("document.documentElement.scrollWidth <= innerWidth")
        assert page.script(
            "[...document.querySelectorAll('header *, nav *')]"
            ".every(one => one.getBoundingClientRect().right <= innerWidth)"
        )
        picture = folder / f"{name}-{'dark' if dark else 'light'}-{size[0]}x{size[1]}.png"
        assert page.driver.save_screenshot(str(picture))
    assert page.errors() == []
