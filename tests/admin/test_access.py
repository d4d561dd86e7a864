"""``/api/v1/acls``, ``/api/v1/quotas``, ``/api/v1/users``, and their page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_admin.app import create_app
from kafka_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tests.admin.chromium import Browser, needs_chromium
from tests.admin.live_admin import LiveAdmin, open_live_admin, pointers, served
from trio_broker.changes.change import ChangeChannel
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER

READ_ORDERS = {"resource_type": "TOPIC", "resource_name": "orders", "principal": "User:alice", "operation": "READ"}


@pytest.fixture
async def judged(tmp_path: Path) -> AsyncIterator[LiveAdmin]:
    """A broker with an authorizer, where who has not logged in may do everything."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    async with open_live_admin(tmp_path, **settings) as live:
        yield live


def made(live: LiveAdmin, channel: ChangeChannel = ChangeChannel.HTTP) -> list[tuple[str, str, str]]:
    """What the journal has of access: action, type and resource."""
    return [
        (each.action.value, each.resource_type.value, each.resource)
        for each in live.broker.services.changes.changes
        if each.resource_type.value in ("acl", "quota", "user") and each.origin.channel is channel
    ]


async def test_an_entry_is_added_listed_and_removed(judged: LiveAdmin) -> None:
    http = judged.http
    tried = await http.post("/api/v1/acls?dry_run=true", json=READ_ORDERS)
    assert (tried.status_code, (await judged.get("/api/v1/acls"))["total"]) == (201, 0)
    for _ in range(2):
        assert (await http.post("/api/v1/acls", json=READ_ORDERS)).status_code == 201
    listed = await judged.get("/api/v1/acls", search="alice")
    entry = READ_ORDERS | {"pattern_type": "LITERAL", "host": "*", "permission": "ALLOW"}
    assert listed["items"] == [entry]
    assert (await http.delete("/api/v1/acls", params=READ_ORDERS | {"host": "10.0.0.1"})).status_code == 404
    assert (await http.delete("/api/v1/acls", params=READ_ORDERS | {"dry_run": "true"})).status_code == 200
    assert (await http.delete("/api/v1/acls", params=READ_ORDERS)).json() == {"dry_run": False, "acl": entry}
    assert (await judged.get("/api/v1/acls"))["total"] == 0
    says = "ALLOW User:alice from * READ on TOPIC:LITERAL:orders"
    assert made(judged) == [("created", "acl", says), ("deleted", "acl", says)]


@pytest.mark.parametrize(
    ("field", "value"), [("operation", "FLY"), ("resource_name", ""), ("principal", "alice"), ("host", "10.0.0.0/99")]
)
async def test_an_entry_that_could_never_count_is_refused(judged: LiveAdmin, field: str, value: str) -> None:
    for dry_run in ("true", "false"):
        refused = await judged.http.post(f"/api/v1/acls?dry_run={dry_run}", json=READ_ORDERS | {field: value})
        assert refused.status_code == 422
    assert (await judged.get("/api/v1/acls"))["total"] == 0


async def test_without_an_authorizer_entries_are_not_changed(live: LiveAdmin) -> None:
    for refused in (
        await live.http.post("/api/v1/acls", json=READ_ORDERS),
        await live.http.delete("/api/v1/acls", params=READ_ORDERS),
    ):
        assert pointers(refused, 409) == []
        assert "authorizer.class.name" in refused.text
    assert "everybody may do everything" in (await live.http.get("/access")).text


async def test_quotas_are_set_listed_and_removed(live: LiveAdmin) -> None:
    http = live.http
    body: dict[str, Any] = {"user": "alice", "client_id": "<default>", "quotas": {"producer_byte_rate": 5e6}}
    assert (await http.put("/api/v1/quotas?dry_run=true", json=body)).status_code == 200
    assert (await live.get("/api/v1/quotas"))["total"] == 0
    assert (await http.put("/api/v1/quotas", json=body)).status_code == 200
    await http.put("/api/v1/quotas", json=body | {"quotas": {"request_percentage": 50}})
    [found] = (await live.get("/api/v1/quotas", search="alice"))["items"]
    assert found["entity"] == {"user": "alice", "client_id": "<default>", "ip": None}
    assert found["quotas"] == {"producer_byte_rate": 5e6, "request_percentage": 50}
    assert dict(live.broker.services.quotas.quotas.of_entities) == {
        frozenset({("user", "alice"), ("client-id", None)}): found["quotas"]
    }
    await http.put("/api/v1/quotas", json=body | {"quotas": {"request_percentage": None}})
    assert (await http.delete("/api/v1/quotas", params={"user": "alice"})).status_code == 404
    removed = await http.delete("/api/v1/quotas", params={"user": "alice", "client_id": "<default>"})
    assert removed.json()["quotas"] == {"producer_byte_rate": None}
    assert made(live) == [("config", "quota", "user alice, client-id (default)")] * 4


@pytest.mark.parametrize(
    "body",
    [
        {"user": "alice", "quotas": {"producer_byte_rate": -1}},
        {"user": "alice", "quotas": {"no_such_rate": 1}},
        {"user": "alice", "ip": "::1", "quotas": {"producer_byte_rate": 1}},
        {"user": "alice", "quotas": {}},
        {"quotas": {"producer_byte_rate": 1}},
    ],
)
async def test_wrong_quotas_are_refused(live: LiveAdmin, body: Any) -> None:
    assert (await live.http.put("/api/v1/quotas", json=body)).status_code == 422


async def test_users_of_scram_are_listed_without_what_their_passwords_are_checked_with(live: LiveAdmin) -> None:
    added = ScramCredentialUpsertion(name="bob", mechanism=2, iterations=8192, salt=b"salt", salted_password=b"salted")
    await live.kafka.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[added]), 0)
    assert (await live.get("/api/v1/users"))["items"] == [{"name": "bob", "mechanisms": {"SCRAM-SHA-512": 8192}}]
    page = (await live.http.get("/access")).text
    assert "SCRAM-SHA-512" in page
    assert "salt" not in page


@needs_chromium
async def test_a_browser_adds_an_entry_and_sets_a_quota(judged: LiveAdmin, browser: Browser) -> None:
    async with served(create_app(judged.view)) as url:
        page = await browser.open_page(f"{url}/access")
        await page.evaluate("document.querySelector('[data-opens=add-acl]').click()")
        fill = """(values => Object.entries(values).forEach(([name, value]) => {
            const field = document.querySelector(`dialog[open] [name="${name}"]`);
            field.value = value; field.dispatchEvent(new Event('input', {bubbles: true}));
        }))"""
        await page.evaluate(fill + "({principal: 'User:alice', resource_name: 'a & b', operation: 'WRITE'})")
        await page.evaluate("document.querySelector('dialog[open] [data-does]').click()")
        await page.until("document.querySelector('#acls')?.textContent.includes('a & b')")
        await page.evaluate("document.querySelector('[data-opens=set-quotas]').click()")
        await page.evaluate(fill + "({user: '<default>', 'quotas/producer_byte_rate': '1048576'})")
        await page.evaluate("document.querySelector('dialog[open] [data-does]').click()")
        await page.until("document.querySelector('#quotas')?.textContent.includes('1048576')")
        await page.evaluate("document.querySelector('[data-opens=remove-acl]').click()")
        await page.evaluate("document.querySelector('dialog[open] [data-does]').click()")
        await page.until("!document.querySelector('#acls')?.textContent.includes('a & b')")
    assert [action for action, _, _ in made(judged, ChangeChannel.PAGE)] == ["created", "config", "deleted"]
