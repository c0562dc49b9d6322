"""The page's pane "Debug" in a real browser: kernels are stepped forwards and backwards by clicks, keys, commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq.tools.trace.serve import PageServer
from tests.browser import Tab, browser
from tests.tools.trace.test_debug_view import matmul as matmul  # fixtures of ours, too
from tests.tools.trace.test_debug_view import server as server

pytestmark = pytest.mark.browser
WIDE, NARROW = (1400, 900), (900, 700)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture
def page(driver: Any, server: PageServer) -> Tab:
    made = Tab(driver)
    made.look(WIDE, dark=False)
    made.open(server.url)
    made.see("!document.querySelector('[data-tab=debug]').hidden")
    made.click("[data-tab=debug]")
    return made


def place(page: Tab) -> str:
    return page.text(".debug-place")


def start(page: Tab) -> None:
    page.click("#debug-start")
    page.see("document.querySelector('.debug-place')?.innerText === 'launch 1, step 1'")


def at(page: Tab, wanted: str) -> None:
    page.see(f"document.querySelector('.debug-place')?.innerText === '{wanted}'")


def test_start_stops_at_the_first_kernel_and_buttons_go_both_ways(page: Tab) -> None:
    assert "Nothing runs yet" in page.text(".debug-code")
    start(page)
    assert page.text(".debug-code .here").split()[0] == "11"
    page.click("[data-move=step]")
    at(page, "launch 1, step 2")
    page.click("[data-move=step]")
    at(page, "launch 1, step 3")
    page.click("[data-move=reverse-step]")
    at(page, "launch 1, step 2")
    assert page.text(".debug-past") == "in the past"
    assert page.errors() == []


def test_keys_move_where_nobody_types(page: Tab) -> None:
    start(page)
    page.keys("n")
    at(page, "launch 1, step 2")
    page.keys("n")
    at(page, "launch 1, step 3")
    page.keys("p")
    at(page, "launch 1, step 2")
    page.keys("np", into="#debug-line")
    assert page.script("document.querySelector('#debug-line').value") == "np"
    at(page, "launch 1, step 2")


def test_a_finding_is_stopped_at_and_origin_leads_back_from_it(page: Tab) -> None:
    start(page)
    page.click("[data-move=continue]")
    page.see("document.querySelector('.debug-reason.wrong') !== null")
    assert "[global-race]" in page.text(".debug-reason")
    assert "thread (7, 0, 0)" in page.text(".debug-where p:nth-child(2)")
    lanes = page.texts(".debug-lanes tbody tr")
    assert any(row.split()[:2] == ["7", "on"] for row in lanes)
    page.keys("origin C+20\n", into="#debug-line")
    page.see("document.querySelector('#debug-said').innerText.includes('st.global.f32 [%rd8], %f1')")
    page.click("[data-move=reverse-step]")
    page.see("document.querySelector('.debug-reason') === null")


def test_a_click_beside_an_instruction_stops_there_and_another_one_does_not(page: Tab) -> None:
    start(page)
    line = (
        "[...document.querySelectorAll('.debug-code .line')].find(one => one.innerText.includes('bar.sync'))"
    )
    page.script(f"{line}.querySelector('.point').click()")
    page.see(f"{line}.querySelector('.point').getAttribute('aria-pressed') === 'true'")
    assert any(text.startswith("pc ") for text in page.texts(".debug-points td:first-child"))
    page.click("[data-move=continue]")
    page.see(f"{line}.classList.contains('here')")
    page.script(f"{line}.querySelector('.point').click()")
    page.see(f"{line}.querySelector('.point').getAttribute('aria-pressed') === 'false'")


def test_registers_have_types_and_others_are_added(page: Tab) -> None:
    start(page)
    page.keys("step 22\n", into="#debug-line")
    at(page, "launch 1, step 23")
    page.keys("%f1\n", into="#debug-register")
    page.see(
        "[...document.querySelectorAll('.debug-registers tr')].some(one => one.innerText.startsWith('%f1'))"
    )
    page.script(
        "(pick => (pick.value = 'f32', pick.dispatchEvent(new Event('change'))))(document.querySelector('#debug-kind'))"
    )
    page.see("document.querySelector('#debug-kind')?.value === 'f32'")
    page.keys("C\n", into="#debug-memory-address")
    page.see("document.querySelector('.debug-memory')?.innerText.includes('4096 bytes')")


def test_a_refused_command_is_said_and_hostile_text_is_only_text(page: Tab) -> None:
    start(page)
    page.keys("<img src=x onerror=window.owned=1>\n", into="#debug-line")
    page.see("document.querySelector('#debug-said .wrong') !== null")
    assert page.script("window.owned") is None
    assert "<img src=x" in page.text("#debug-said")


def test_the_end_is_shown_and_it_starts_again(page: Tab) -> None:
    page.script("document.querySelectorAll('.debug-words input').forEach(one => one.checked = false)")
    start(page)
    page.click("[data-move=continue]")
    page.see(
        "document.querySelector('.debug-reason')?.innerText.startsWith('the program has ended with status 0')"
    )
    page.click("[data-move=continue]")
    page.see("document.querySelector('.debug-code').innerText.includes('It has ended with status 0')")
    assert page.text("#debug-start") == "start again"
    start(page)
    assert page.errors() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_is_cut_off(
    page: Tab, size: tuple[int, int], dark: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = Path(request.config.getoption("--pictures") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    page.look(size, dark)
    start(page)
    page.click("[data-move=continue]")
    page.see("document.querySelector('.debug-reason.wrong') !== null")
    page.keys("origin %f1\n", into="#debug-line")
    page.see("document.querySelector('#debug-said').innerText.includes('fma.rn.f32')")
    page.script("document.querySelector('#pane-debug').scrollTo(0, 0)")
    name = f"debug-{'dark' if dark else 'light'}-{size[0]}.png"
    page.driver.save_screenshot(str(folder / name))
    here = "document.querySelector('.debug-code .here').getBoundingClientRect()"
    assert page.script(f"{here}.top > 0 && {here}.bottom < innerHeight")
    wide = "[...document.querySelectorAll('#pane-debug, .debug-bar, .debug-where, .debug-columns')]"
    assert page.script(f"{wide}.every(one => one.scrollWidth <= one.clientWidth + 1)")
    assert page.script("document.documentElement.scrollWidth <= innerWidth")
    assert page.script("document.querySelector('.debug-code').clientHeight > 120")
