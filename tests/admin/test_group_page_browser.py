"""What the page of a group does in a browser: it resets offsets, deletes the group, and says why it cannot yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker_admin.app import create_app
from tests.admin.chromium import Browser, Page, needs_chromium
from tests.admin.lagging_group import GROUP_ID, RECORDS, TOPIC, Consumer, make_group, make_lag
from tests.admin.live_admin import LiveAdmin, open_live_admin, served
from trio_broker.runtime.clock import ManualClock

pytestmark = needs_chromium


@attrs.define
class SlowList:
    """The app, but the list of groups comes only once the page of a group has been answered twice that it is gone."""

    app: ASGIApp
    answers_left: int = 2
    gone: trio.Event = attrs.field(factory=trio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/groups"):
            await self.app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            await send(message)
            if message.get("status") == 404:
                self.answers_left -= 1
                if not self.answers_left:
                    self.gone.set()

        if scope["path"] == "/groups":
            await self.gone.wait()
        await self.app(scope, receive, counted)


@attrs.frozen
class LaggingGroup:
    """A broker with a group that lags, and a page of its admin app."""

    live: LiveAdmin
    members: list[Consumer]
    url: str
    page: Page


@pytest.fixture
async def lagging(tmp_path: Path, browser: Browser) -> AsyncIterator[LaggingGroup]:
    clock = ManualClock()
    settings = {"offsets_topic_num_partitions": "1", "group_consumer_assignment_interval_ms": "0"}
    async with open_live_admin(tmp_path, clock=clock, **settings) as live:
        members = await make_group(live)
        await make_lag(live, clock, members)
        app = create_app(live.view)
        async with served(SlowList(app)) as url:
            yield LaggingGroup(live, members, url, await browser.open_page(f"{url}/groups/{GROUP_ID}"))


def committed(lagging: LaggingGroup) -> set[int]:
    offsets = lagging.live.broker.services.groups.machine(GROUP_ID).offsets
    return {commit.offset for commit in offsets.of_topic(GROUP_ID, TOPIC).values()}


async def test_a_group_is_reset_and_deleted_once_it_has_no_members(lagging: LaggingGroup):
    page = lagging.page
    drawn = "[...document.querySelectorAll('.series-chart .line')]"
    lines = await page.evaluate(f"{drawn}.map((line) => line.getTotalLength())")
    assert len(lines) == 3
    assert min(lines) > 0
    assert await page.evaluate("document.querySelector('.actions button').disabled")
    assert "it has 2 members" in await page.text(".actions p")

    for member in lagging.members:
        await member.heartbeat(-1)
    await page.go_to(f"{lagging.url}/groups/{GROUP_ID}/reset")
    await page.until("document.getElementById('reset').open")
    assert "No members" in await page.text(".members tbody")
    assert await page.evaluate("document.querySelector('.finding').dataset.cause") == "no members"
    await page.evaluate(
        """(() => {
            const target = document.querySelector("#reset [name=target]");
            target.value = "file";
            target.dispatchEvent(new Event("input", {bubbles: true}));
            const given = new DataTransfer();
            given.items.add(new File(["orders,0,77\\norders,1,99999"], "offsets.csv"));
            const field = document.querySelector("#reset [data-fills=file]");
            field.files = given.files;
            field.dispatchEvent(new Event("change", {bubbles: true}));
        })()"""
    )
    await page.until("document.querySelector('#reset textarea').value.includes('orders,0,77')")
    await page.evaluate("document.querySelector('#reset [data-tries]').click()")
    await page.until("document.querySelector('#reset [data-plan]:not([hidden]) tbody tr') !== null")
    assert "99999 is after the log ends" in await page.text("#reset [data-plan]")
    await page.evaluate(
        """(() => {
            const target = document.querySelector("#reset [name=target]");
            target.value = "offset";
            target.dispatchEvent(new Event("input", {bubbles: true}));
            const offset = document.querySelector("#reset [name=offset]");
            offset.value = "100";
            offset.dispatchEvent(new Event("input", {bubbles: true}));
        })()"""
    )
    commands = await page.evaluate(
        "[...document.querySelectorAll('#reset [data-command]')].map((each) => each.textContent)"
    )
    assert commands[0] == f"trio-broker groups reset-offsets {GROUP_ID} --all-topics --to-offset 100 --execute"
    assert commands[1].endswith(f"--group {GROUP_ID} --reset-offsets --all-topics --to-offset 100 --execute")
    await page.evaluate("document.querySelector('#reset [data-tries]').click()")
    await page.until("document.querySelector('#reset [data-plan]:not([hidden]) tbody tr') !== null")
    plan = await page.text("#reset [data-plan]")
    assert "4 partitions; 118 records are skipped, 1\u202f400 are read again." in plan
    assert committed(lagging) == {41, 4 * RECORDS}
    await page.evaluate("document.querySelector('#reset [data-does]').click()")
    await page.until("!document.getElementById('reset').open")
    assert committed(lagging) == {100}

    await page.evaluate("document.querySelector('[data-opens=delete-group]').click()")
    assert await page.evaluate("document.querySelector('#delete-group [data-does]').disabled")
    await page.evaluate(
        f"""(() => {{
            const typed = document.querySelector("#delete-group [data-typed]");
            typed.value = "{GROUP_ID}";
            typed.dispatchEvent(new Event("input", {{bubbles: true}}));
            document.querySelector("#delete-group [data-does]").click();
        }})()"""
    )
    # The page is read again every few seconds until it is left. That the group is gone must not load it anew then: the
    # way to the list would end.
    await page.until("location.pathname === '/groups'")
    assert lagging.live.view.cluster.groups.get(GROUP_ID) is None
