"""A fake broker and a client of the admin app over it, the same over a real broker, and a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from broker_admin.app import create_app
from tests.admin.chromium import EXECUTABLE, Browser, Chromium, browser_in, start_chromium
from tests.admin.fake_broker import FakeBroker
from tests.admin.live_admin import LiveAdmin, open_live_admin, served
from tests.oracles import absent


@pytest.fixture
def fake() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
async def client(fake: FakeBroker) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(fake.view), raise_app_exceptions=False, client=("127.0.0.1", 5555))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened


@pytest.fixture
def chromium() -> None:
    if EXECUTABLE is None:
        absent("chromium", "there is no Chromium here")


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[LiveAdmin]:
    async with open_live_admin(tmp_path) as opened:
        yield opened


@pytest.fixture
async def live_url(live: LiveAdmin) -> AsyncIterator[str]:
    """The address at which a browser reaches the app of ``live``."""
    async with served(create_app(live.view)) as url:
        yield url


@pytest.fixture(scope="session")
def running_chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Chromium]]:
    """The process of Chromium that tests share, or another where a test has ended it."""
    started: list[Chromium] = []

    def running() -> Chromium:
        if not started or not started[-1].is_running():
            started.append(start_chromium(tmp_path_factory.mktemp("profile")))
        return started[-1]

    yield running
    for chromium in started:
        chromium.end()


@pytest.fixture
async def browser(chromium: None, running_chromium: Callable[[], Chromium]) -> AsyncIterator[Browser]:
    async with browser_in(running_chromium()) as opened:
        yield opened
