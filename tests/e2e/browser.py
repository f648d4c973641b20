"""Chromium, as the tests use it."""

from __future__ import annotations

import os
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

_PICTURES = Path(__file__).parents[2] / "build" / "e2e"
_PATIENCE = 180  # a machine may be slow
_MISSING = " nor ".join(name for name in ("chromium", "chromedriver") if not shutil.which(name))
NO_BROWSER = f"there is no {_MISSING}; install it with scripts/install-browser" if _MISSING else ""
"""Why tests in a browser are skipped."""

needs_browser = pytest.mark.skipif(bool(NO_BROWSER), reason=NO_BROWSER)


class Browser:
    """Waits for everything that it is asked for."""

    def __init__(self, address: str) -> None:
        self._address = address
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        options.page_load_strategy = "eager"
        words = ["--headless=new", "--no-proxy-server", "--disable-dev-shm-usage", "--disable-gpu"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # Chromium refuses to use it as root
        for word in (*words, "--hide-scrollbars", "--lang=en"):
            options.add_argument(word)
        service = webdriver.ChromeService(str(shutil.which("chromedriver")))
        self._driver = webdriver.Chrome(options, service)
        self._home = self._driver.current_window_handle

    def close(self) -> None:
        self._driver.quit()

    def open(self, path: str, height: int = 1000, width: int = 1280) -> None:
        self.resize(height, width)
        self._driver.get(f"{self._address}/{path}")

    def resize(self, height: int, width: int = 1280) -> None:
        self._driver.set_window_size(width, height)

    def prefer(self, theme: str) -> None:
        """Pages are `light` or `dark` from now on."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def find(self, xpath: str) -> WebElement:
        def look() -> WebElement | None:
            return next(iter(self._driver.find_elements(By.XPATH, xpath)), None)

        found: WebElement = self._until(look, xpath)
        return found

    def has(self, xpath: str) -> bool:
        return bool(self._driver.find_elements(By.XPATH, xpath))

    def run(self, script: str) -> Any:
        return self._driver.execute_script(script)

    def holds(self, script: str, what: str) -> None:
        self._until(lambda: self.run(script), what)

    def reads(self, *texts: str, within: str = "//body") -> str:
        """Returns the text of an element as soon as it contains all of these."""

        def look() -> str:
            found = self.find(within).text
            return found if all(text in found for text in texts) else ""

        return str(self._until(look, " and ".join(texts)))

    def press(self, key: str) -> None:
        self.find("//body").send_keys(key)

    def press_in_focus(self, key: str) -> None:
        self._driver.switch_to.active_element.send_keys(getattr(Keys, key.upper()))

    def fold(self, group: str) -> None:
        """Folds or unfolds it."""
        self.find(f'//*[@data-testid="summary-{group}"]').click()

    def follow(self, button: str) -> None:
        """Switches to the window that a button opens."""
        self.find(f"//a[normalize-space()='{button}']").click()
        self._until(lambda: len(self._driver.window_handles) == 2, f"{button} opens a window")
        (opened,) = {*self._driver.window_handles} - {self._home}
        self._driver.switch_to.window(opened)

    def back(self) -> None:
        self._driver.close()
        self._driver.switch_to.window(self._home)

    @contextmanager
    def another_window(self) -> Iterator[None]:
        """Over the first one, which nobody sees meanwhile."""
        self._driver.switch_to.new_window("tab")
        try:
            yield
        finally:
            self.back()

    def picture(self, xpath: str, file: Path) -> None:
        """Writes an element as WebP."""
        box = self._until(lambda: self.find(xpath).rect, xpath)
        # Without the line over it.
        clip = {**box, "y": box["y"] + 2, "height": box["height"] - 2, "scale": 1}
        asked = {"format": "webp", "quality": 80, "clip": clip, "captureBeyondViewport": True}
        taken = self._driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        file.write_bytes(b64decode(taken["data"]))

    def keep(self, name: str) -> None:
        _PICTURES.mkdir(parents=True, exist_ok=True)
        self._driver.save_screenshot(str(_PICTURES / f"{name}.png"))

    def _until(self, look: Callable[[], Any], what: str) -> Any:
        # An element that the page replaces meanwhile is looked up again.
        replaced = [StaleElementReferenceException]
        wait = WebDriverWait(self._driver, _PATIENCE, ignored_exceptions=replaced)
        try:
            return wait.until(lambda _: look())
        except TimeoutException:
            self.keep("missed")
            raise AssertionError(f"{self._driver.current_url}: no {what}") from None
