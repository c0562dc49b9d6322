"""The chat page in a real browser: a person asks, reads along, stops, and begins anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hcq.frontend.more.llm.batch import Batch
from hcq.frontend.more.llm.dialogue import form_of
from hcq.frontend.more.llm.engine import Engine
from hcq.frontend.more.llm.questions import Reader
from hcq.frontend.more.llm.server import Server
from tests.browser import Tab, browser
from tests.frontend.more.llm import alphabet
from tests.frontend.more.llm.test_server import LETTERS, PLAIN, ROOM, idle

pytestmark = pytest.mark.browser
HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>'


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    tokenizer = alphabet.tokenizer(template="<|im_start|><|im_end|>")
    made = Server(Reader(f"alphabet {HOSTILE}", 260, tokenizer, form_of(tokenizer), ROOM, PLAIN))
    made.engine = Engine(Batch(alphabet.model(), 2, ROOM), waiting=1)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.stop()


@pytest.fixture
def page(driver: Any, server: Server) -> Tab:
    made = Tab(driver)
    made.look((1000, 800), dark=False)
    made.open(server.url)
    return made


def test_a_question_is_answered_and_the_conversation_goes_on(
    page: Tab, request: pytest.FixtureRequest
) -> None:
    page.keys("hello\n", into="#text")
    page.see(f"document.querySelector('.message.assistant')?.textContent === '{LETTERS}'")
    page.see("document.querySelector('#state').textContent.startsWith('26 tokens')")
    page.keys("again", into="#text")
    page.click("#send")
    page.see(f"[...document.querySelectorAll('.message.assistant')].at(-1)?.textContent === '{LETTERS}'")
    page.see("!document.querySelector('#send').hidden")
    assert page.texts(".message") == ["hello", LETTERS, "again", LETTERS]
    # what was said before is sent again
    assert page.script("messages.map(one => one.role)") == ["user", "assistant"] * 2
    pictures = request.config.getoption("--pictures")
    for dark in (False, True) if pictures else ():
        page.look((1000, 800), dark)
        page.driver.save_screenshot(str(Path(pictures) / f"llm-{'dark' if dark else 'light'}.png"))
    page.click("#new")
    assert page.texts(".message") == [] and page.script("messages.length") == 0
    assert page.errors() == []


@pytest.mark.thorough
def test_stop_ends_an_answer_and_frees_its_slot(page: Tab, server: Server) -> None:
    page.script("(part('most').value = '100000')")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hcq.frontend.more.llm.server.Reader.question", _endless(server.reader.question))
        page.keys("hello\n", into="#text")
        page.see("document.querySelector('.message.assistant')?.textContent.length > 30")
        (written,) = server.engine.batch.active
        page.click("#stop")
        page.see("document.querySelector('#state').textContent === 'stopped'")
    idle(server)
    assert len(written.tokens) < ROOM - 20 and not written.ending
    assert page.script("messages.at(-1).content").startswith("123456789012")
    page.see("!document.querySelector('#send').hidden && document.querySelector('#stop').hidden")


def _endless(question: Any) -> Any:
    """Questions of which each goes on from a digit."""

    def asked(reader: Any, content: bytes, is_chat: bool) -> Any:
        return replace(question(content, is_chat), prompt=[ord("0")])

    return asked


@pytest.mark.thorough
def test_what_is_refused_is_shown_and_not_sent_again(page: Tab) -> None:
    page.script("(part('temperature').value = '7')")
    page.keys("hello\n", into="#text")
    page.see("document.querySelector('.message.wrong')?.textContent.includes('temperature says 7')")
    assert page.script("messages.length") == 0
    page.script("(part('temperature').value = '')")
    page.keys("hello\n", into="#text")
    page.see(f"document.querySelector('.message.assistant')?.textContent === '{LETTERS}'")


def test_texts_are_texts_and_never_markup(page: Tab) -> None:
    assert page.text("#model") == f"alphabet {HOSTILE}"
    page.keys(HOSTILE + "\n", into="#text")
    page.see("document.querySelector('.message.assistant')?.textContent.length === 26")
    assert page.texts(".message.user") == [HOSTILE]
    time.sleep(0.05)
    assert page.script("window.owned ?? null") is None


@pytest.mark.thorough
def test_a_line_break_is_written_with_shift(page: Tab) -> None:
    from selenium.webdriver.common.keys import Keys

    page.keys("one", Keys.SHIFT + Keys.ENTER, Keys.NULL, "two", into="#text")
    assert page.script("part('text').value") == "one\ntwo"
    page.keys("\n", into="#text")
    page.see("document.querySelector('.message.user')?.textContent === 'one\\ntwo'")
