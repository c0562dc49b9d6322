"""A real browser for the tests of pages: what a person sees, clicks and types.

In       Chromium and its driver, found by name; a folder for what they keep
Out      `browser`, a context in which it runs, and `Tab`, which tests look at
Changes  nothing that stays
Next     tests/tools/trace/test_page.py, tests/frontend/more/llm/test_page.py (who look)
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Tab:
    """A page in the browser. `see` waits until something is true; `script` runs JavaScript."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Go to an address, and wait until its page says that it is ready."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(address)
        self.see("document.body.dataset.ready === 'true'")

    def script(self, text: str, *arguments: object) -> Any:
        return self.driver.execute_script(f"return {text}", *arguments)

    def see(self, condition: str) -> None:
        deadline = time.monotonic() + 50
        while not self.script(condition):
            assert time.monotonic() < deadline, f"never became true: {condition}"
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return str(self.script("document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        return list(
            self.script("[...document.querySelectorAll(arguments[0])].map(one => one.innerText)", selector)
        )

    def click(self, selector: str) -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def keys(self, *keys: str, into: str = "body") -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, into).send_keys(*keys)

    def look(self, size: tuple[int, int], dark: bool) -> None:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """A browser that keeps what it keeps in a folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = _program("chromium")
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(_program("chromedriver")))
    try:
        yield made
    finally:
        made.quit()


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed: apt install chromium chromium-driver"
    return found
