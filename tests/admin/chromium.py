"""Chromium without a window, driven over its DevTools protocol by a pair of pipes: pages for tests and pictures.

``Chromium`` is one process, ``Browser`` a profile of its own in it, as a private window has one, and ``Page`` one tab.
Tests share one process, because a start costs more than most of them. The protocol is JSON, each message ended by a
zero byte; commands are answered by ``id``, and a tab's commands carry its ``sessionId``. Source: Chrome DevTools
Protocol, "Remote debugging pipe".
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from outcome import Error, Outcome, Value

from tests.waits import TimeLeft, fail_after

NAMES = ("chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Programs of Chromium, the cheapest first: one without a window of its own takes half the CPU for a page, because the
others draw their tabs and address bars also where nobody sees them."""

EXECUTABLE = next(filter(None, map(shutil.which, NAMES)), None)

WAIT_SECONDS = 60.0
"""How long a test waits for what takes a second or two on a quiet machine."""

POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 0.5
"""Between the first two looks at a condition in a page, and at most: it grows, for each look costs CPU."""

PAGES_OF_THE_ADDRESS_BAR = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup")
"""Features of Chromium that load pages of its own for each window, in processes that cost more than a test's page."""

FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # containers and root have none; only our own pages are opened
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--no-startup-window",  # each profile has a window of its own, and the first of them nobody would use
    "--renderer-process-limit=1",  # a process costs as much as a page: not one for each, and none in reserve
    f"--disable-features={','.join(PAGES_OF_THE_ADDRESS_BAR)}",
)

LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
"""Chromium reads commands from descriptor 3 and answers on 4, and ``subprocess`` cannot rename descriptors."""

FIRST_SAFE_DESCRIPTOR = 10
"""Pipes are moved here, so that neither end is one of 3 and 4, which the launcher overwrites."""


needs_chromium = pytest.mark.usefixtures("chromium")
"""For a test with a browser: skipped without one, unless the oracle is required (``conftest.py``)."""


FIND = """(name, within) =>
    [...document.querySelectorAll(`:is(${within}) :is(a, button, summary)`)]
        .find((each) => each.checkVisibility() && !each.disabled && each.innerText.trim() === name)"""

TYPE = """(selector, text) => {
    const field = document.querySelector(selector);
    field.value = text;
    field.dispatchEvent(new Event("input", {bubbles: true}));
}"""


class ScriptFailed(Exception):
    """JavaScript that a test evaluated raised; the text is its message."""


@attrs.define(eq=False)
class Chromium:
    """One process and our ends of its pipes, for one ``Browser`` after the other."""

    process: subprocess.Popen[bytes]
    commands: int
    answers: int
    next_id: int = 1
    received: bytearray = attrs.field(factory=bytearray)
    """The beginning of an answer whose end has not arrived, which the next browser must not take for a whole one."""

    def is_running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self.commands, self.answers):
            os.close(end)


@attrs.define(eq=False)
class Browser:
    """A profile of its own in a process of Chromium, and the commands that wait for their answers."""

    chromium: Chromium
    commands: trio.abc.SendStream
    answers: trio.abc.ReceiveStream
    context_id: str = ""
    _waiting: dict[int, trio.MemorySendChannel[Outcome[Any]]] = attrs.field(factory=dict, init=False)

    async def command(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Send one command and return its result."""
        number = self.chromium.next_id
        self.chromium.next_id += 1
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        sender, receiver = trio.open_memory_channel[Outcome[Any]](1)
        self._waiting[number] = sender
        with fail_after(WAIT_SECONDS):
            await self.commands.send_all(json.dumps(message).encode() + b"\0")
            return (await receiver.receive()).unwrap()

    async def dispatch(self) -> None:
        """Hand answers to the commands that wait for them, until the process ends."""
        buffer = self.chromium.received
        while chunk := await self.answers.receive_some(1 << 16):
            buffer += chunk
            while (end := buffer.find(b"\0")) >= 0:
                message = json.loads(buffer[:end])
                del buffer[: end + 1]
                if (sender := self._waiting.pop(message.get("id"), None)) is not None:
                    sender.send_nowait(answer_of(message))

    async def open_page(self, url: str, *, script: str = "", **view: Any) -> Page:
        """Open ``url`` in a new tab; ``script`` runs before the page's own, ``view`` is as for ``Page.set_view``."""
        target = await self.command("Target.createTarget", url="about:blank", browserContextId=self.context_id)
        attached = await self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"], target["targetId"])
        await page.command("Page.enable")
        if script:
            await page.command("Page.addScriptToEvaluateOnNewDocument", source=script)
        await page.set_view(**view)
        await page.go_to(url)
        return page


class CommandFailed(Exception):
    """Chromium refused a command, or could not finish it."""


NAVIGATED = "Inspected target navigated or closed"
"""How a command ends that a navigation has overtaken."""


def answer_of(message: Mapping[str, Any]) -> Outcome[Any]:
    if "error" in message:
        return Error(CommandFailed(message["error"]["message"]))
    return Value(message["result"])


@attrs.frozen
class Page:
    """One tab."""

    browser: Browser
    session: str
    target_id: str

    async def command(self, method: str, **parameters: Any) -> Any:
        return await self.browser.command(method, self.session, **parameters)

    async def set_view(self, *, width: int = 1280, height: int = 900, scale: float = 1, dark: bool = False) -> None:
        """Give the page a size in CSS pixels and a colour scheme."""
        await self.resize(width, height, scale)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])

    async def resize(self, width: int, height: int = 900, scale: float = 1) -> None:
        """Give the page a size in CSS pixels, and leave its colours: with those, all of it would be drawn anew."""
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    async def go_to(self, url: str) -> None:
        """Load ``url`` and wait until its scripts have run."""
        await self.command("Page.navigate", url=url)
        await self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited.

        Raises:
            ScriptFailed: it raised.
        """
        answer = await self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ScriptFailed(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    async def text(self, selector: str) -> str:
        """The text of the first element that ``selector`` finds, as it is shown."""
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def click(self, name: str, path: str = "", *, within: str = "body") -> None:
        """Click the first visible link or button that is called ``name``, and wait for the page at ``path``, if any."""
        await self.until(f"({FIND})({json.dumps(name)}, {json.dumps(within)}) !== undefined")
        await self.evaluate(f"({FIND})({json.dumps(name)}, {json.dumps(within)}).click()")
        if path:
            await self.until(f"location.pathname === {json.dumps(path)} && document.readyState === 'complete'")

    async def type(self, selector: str, text: str) -> None:
        """Give the first field that ``selector`` finds the value ``text``."""
        await self.evaluate(f"({TYPE})({json.dumps(selector)}, {json.dumps(text)})")

    async def click_on(self, selector: str) -> None:
        """Click the first element that ``selector`` finds, also where it is not in view."""
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    async def until(self, expression: str, pause: float = POLL_SECONDS) -> None:
        """Wait until a JavaScript expression is true; ``pause`` is for the first look, and grows."""
        time_left = TimeLeft(WAIT_SECONDS)
        while not await self.holds(expression):
            assert not time_left.is_over, f"it never came about in the page in {time_left}: {expression}"
            await trio.sleep(pause)
            pause = max(pause, min(1.2 * pause, MAX_POLL_SECONDS))

    async def holds(self, expression: str) -> bool:
        """Whether a JavaScript expression is true; it is not while the page is left for another one."""
        try:
            return bool(await self.evaluate(expression))
        except CommandFailed as error:
            if str(error) != NAVIGATED:
                raise
            return False

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page, or of the part in view, to ``path``."""
        answer = await self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await trio.Path(path).write_bytes(base64.b64decode(answer["data"]))

    async def close(self) -> None:
        await self.browser.command("Target.closeTarget", targetId=self.target_id)


@contextmanager
def running_chromium(profile: Path) -> Iterator[Chromium]:
    """Run Chromium with an empty profile in ``profile`` while the block lasts."""
    chromium = start_chromium(profile)
    try:
        yield chromium
    finally:
        chromium.end()


def start_chromium(profile: Path) -> Chromium:
    assert EXECUTABLE is not None, "there is no Chromium here"
    command_read, command_write = pipe()
    answer_read, answer_write = pipe()
    program = [EXECUTABLE, *FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", LAUNCHER, str(command_read), str(answer_write), *program],
        pass_fds=(command_read, answer_write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_read)
    os.close(answer_write)
    return Chromium(process, command_write, answer_read)


@asynccontextmanager
async def browser_in(chromium: Chromium) -> AsyncIterator[Browser]:
    """A browser with cookies, storage and cache of its own while the block lasts; its pages are closed at the end."""
    async with (
        trio.lowlevel.FdStream(os.dup(chromium.commands)) as commands,
        trio.lowlevel.FdStream(os.dup(chromium.answers)) as answers,
        trio.open_nursery() as nursery,
    ):
        browser = Browser(chromium, commands, answers)
        nursery.start_soon(browser.dispatch)
        context = await browser.command("Target.createBrowserContext")
        browser.context_id = context["browserContextId"]
        try:
            yield browser
        except BaseException:
            chromium.process.kill()  # a command may have been sent in part, and its rest would spoil the next test
            raise
        else:
            await browser.command("Target.disposeBrowserContext", browserContextId=browser.context_id)
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_browser(profile: Path) -> AsyncIterator[Browser]:
    """A browser in a process of its own, with an empty profile in ``profile``, while the block lasts."""
    with running_chromium(profile) as chromium:
        async with browser_in(chromium) as browser:
            yield browser


def pipe() -> tuple[int, int]:
    """Both ends of a pipe, on descriptors that the launcher does not overwrite."""
    ends = os.pipe()
    try:
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FIRST_SAFE_DESCRIPTOR) for end in ends)
    finally:
        for end in ends:
            os.close(end)
    return read, write
