"""A real browser on WMS2's pages, and everything it complains of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright

PROGRAM = "WMS2_CHROMIUM"
#: A laptop; pages grow downwards.
WIDTH, HEIGHT = 1440, 900
#: Told by the page itself, because the console words what it refuses differently from release to release.
WATCH_POLICY = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error("policy: " + event.violatedDirective + " refused " + (event.blockedURI || event.sourceFile));
});
"""


def missing() -> str:
    """Why there is no browser; empty when there is one."""
    return "" if os.environ.get(PROGRAM) else f"no browser ({PROGRAM} not set); run with `make test`"


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is gone afterwards.

    While it is there, its driver keeps an event loop in this thread, which Django would take for asynchronous code and refuse
    the database to.
    """
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    with sync_playwright() as driver:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
        running = driver.chromium.launch(executable_path=os.environ[PROGRAM], args=["--disable-gpu"])
        try:
            yield running
        finally:
            running.close()
            os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE")
            if before is not None:
                os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@dataclass
class Window:
    """One window. ``complaints``: console errors, broken scripts, refused by policy, answers of 400 and more."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        """Open an address and wait for all of it."""
        self.page.goto(self.base + path, wait_until="networkidle")

    def sign_in_as(self, user: User) -> None:
        """A session, without the form."""
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        self.page.context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": self.base}])

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width

    @property
    def scrolled(self) -> int:
        """By how many pixels the page has been moved up."""
        height: int = self.page.evaluate("window.scrollY")
        return height

    def hide_place(self, place: str, shown: str) -> None:
        """Show a directory that differs from machine to machine under a name that does not."""
        self.page.evaluate(
            """([place, shown]) => {
                const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
                while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replaceAll(place, shown);
            }""",
            [place, shown],
        )


@contextmanager
def window(running: Browser, base: str, *, dark: bool = False, width: int = WIDTH, tests_tls: bool = False) -> Iterator[Window]:
    """A window of its own, with no cookie. ``tests_tls``: it takes the certificate of a server that a test has made."""
    context = running.new_context(
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
        ignore_https_errors=tests_tls,
    )
    context.add_init_script(WATCH_POLICY)
    page = context.new_page()
    opened = Window(page, base)
    _listen(page, opened.complaints)
    try:
        yield opened
    finally:
        context.close()


def _listen(page: Page, complaints: list[str]) -> None:
    def console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"console: {message.text} ({message.location.get('url', '')})")

    def answer(response: Response) -> None:
        if response.status >= HTTPStatus.BAD_REQUEST:
            complaints.append(f"{response.status}: {response.url}")

    def broken(error: Any) -> None:
        complaints.append(f"script: {error}")

    page.on("console", console)
    page.on("response", answer)
    page.on("pageerror", broken)
