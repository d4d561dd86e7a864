"""What tests read of the app's pages: their text, what could do harm in them, and how wide a browser shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html.parser import HTMLParser

import httpx

from tests.admin.chromium import Page

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>\u202e'

HOSTILE_TEXTS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "</title></script><b>",
    "javascript:alert(1)",
    "&lt;already&amp;escaped",
    "\x00\x1b]0;owned\x07\r\n\x7f",
    "\u202ereversed\u2066\u200b\ufeff",
    "ｆｕｌｌ日本語🐟" + "\u0301" * 50,
    "x" * 32_767,
    "<b>" * 10_000,
)
"""What free text from clients may be."""

WIDTHS = (420, 768, 1280)
"""A telephone, a tablet, a small desktop, in CSS pixels."""


class Inspector(HTMLParser):
    """What a browser would find on a page that could do harm, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.harm: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attributes:
            if name == "style" or name.startswith("on"):
                self.harm.append(f"{tag} {name}={(value or '')[:40]}")
            if name in ("href", "src", "action"):
                self.links.append(value or "")

    def handle_data(self, text: str) -> None:
        self.text.append(text)


def inspect(page: str) -> Inspector:
    inspector = Inspector()
    inspector.feed(page)
    inspector.close()
    return inspector


async def page_of(http: httpx.AsyncClient, address: str, status: int = 200, /, **query: str) -> str:
    """The page at ``address``, without a script."""
    answer = await http.get(address, params=query or None, headers={"accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), answer.text
    return answer.text


def assert_shows(page: str, *values: object) -> None:
    """Each of ``values`` is in the page's text, in which elements and words are one space apart."""
    text = " ".join(" ".join(inspect(page).text).split())
    assert [value for value in values if " ".join(str(value).split()) not in text] == [], text


def assert_inert(page: str) -> None:
    """``HOSTILE`` is on the page, and only as text that can be seen."""
    assert "<script>alert" not in page
    assert "<img" not in page.replace('<img src="/static', "")
    assert "\u202e" not in page
    assert "\\u{202e}" in page


def assert_nothing_is_inline(page: str) -> None:
    """The content security policy would stop it; better that there is nothing to stop."""
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)
    assert all(link.startswith(("/", "#")) for link in inspect(page).links)


async def assert_no_wider_than_the_window(page: Page, addresses: Iterable[str], widths: Iterable[int] = WIDTHS) -> None:
    """The pages at ``addresses`` hold together at every width; a theme changes colours alone."""
    for address in addresses:
        await page.go_to(address)
        for width in widths:
            await page.resize(width)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, (address, width)
