"""A report as a person sees it: the page opened from a file in headless Chromium, and what it holds there."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from clearstate.inventory import Inventory
from clearstate.report import write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

FLAGS = """--headless --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --force-prefers-reduced-motion --window-size=1280,1600"""


class Page:
    """An open report."""

    def __init__(self, driver: Chrome, path: Path) -> None:
        self.driver = driver
        self.path = path
        self.log("browser")
        self.log("performance")
        driver.get(path.as_uri())

    def __getitem__(self, name: str) -> WebElement:
        """The element of this id."""
        return self.driver.find_element(By.ID, name)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """What the elements say; read in one go."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        found: list[str] = self.run(script, selector)
        return found

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def soon(self, condition: Callable[[], Any]) -> None:
        """Waits until it is so; fails where it is not within a while."""
        WebDriverWait(self.driver, 20, 0.05).until(lambda _: condition())

    def rows(self) -> list[list[str]]:
        """The cells of the rows of the table that exist, as text."""
        script = """return [...document.querySelectorAll("#table tr[data-at]")]
            .map((row) => [...row.cells].map((cell) => cell.textContent))"""
        found: list[list[str]] = self.run(script)
        return found

    def search(self, text: str) -> None:
        field = self["search"]
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text or Keys.DELETE)

    def count(self) -> str:
        return self["count"].text

    def crumbs(self) -> list[str]:
        return self.texts("#crumbs button")

    def map(self, side: int = 0) -> WebElement:
        return self.all("#maps .canvas")[side]

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What the browser logged since this was last asked."""
        log: Any = self.driver.get_log
        entries: list[dict[str, Any]] = log(kind)
        return entries

    def complaints(self) -> list[str]:
        """What the browser logged."""
        return [entry["message"] for entry in self.log("browser")]

    def network(self, event: str) -> list[dict[str, Any]]:
        """What the browser logged of its network since this was last asked."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [m["params"] for m in messages if m["method"] == f"Network.{event}"]

    def requests(self) -> list[str]:
        """Addresses of everything that this page asked for since this was last asked, and of the page itself."""
        found = self.network("requestWillBeSent")
        return [one["request"]["url"] for one in found if one["documentURL"] == self.path.as_uri()]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium with ChromeDriver on this machine: `make browser` says how to get them")
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS.split():
        options.add_argument(flag)
    if sys.platform == "linux" and os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Chrome, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Writes a report and opens it. Whatever a test does with it, nothing is complained of and nothing fetched."""
    pages: list[Page] = []

    def open_report(before: Inventory, after: Inventory | None = None) -> Page:
        path = tmp_path / "report.html"
        write(path, before, after)
        pages.append(Page(browser, path))
        return pages[-1]

    yield open_report
    for page in pages:
        assert page.complaints() == []
        assert set(page.requests()) <= {page.path.as_uri()}
