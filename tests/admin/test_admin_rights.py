"""Who may do what over HTTP: by the role of a token, and by the authorizer for a user of the broker."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app import ROUTES, create_app
from broker_admin.logins import Logins
from broker_admin.requirements import Requirement
from broker_admin.rights_page import declared_by, render_admin_rights
from broker_admin.routes.login_pages import login_routes
from broker_admin.routing import Route
from broker_admin.tokens import AdminTokens, Role
from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.admin.fake_broker import FakeBroker
from tests.admin.live_admin import LiveAdmin, open_live_admin
from trio_broker.cluster.delegation_token_control import NewToken, token_hmac
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.handlers.support.rights import Right
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.security.standard_acl import StandardAcl
from trio_broker.security.standard_authorizer import StandardAuthorizer

ROOT = Path(__file__).parents[2]
TOKENS = AdminTokens({role: f"{role.value}-token-0123456789" for role in Role})
CHANGE = {"x-requested-with": "pytest"}
IN_PATHS = {"broker_id": "1", "number:int": "1", "partition": "0", "partition:int": "0", "offset:int": "0"}

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.clients.plain.sasl.jaas.config": (
        'x required user_alice="alice-secret" user_bob="bob-secret" user_root="root-secret";'
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root",
    "delegation.token.secret.key": "of the cluster",
}
ROOT_USER = httpx.BasicAuth("root", "root-secret")
ALICE = httpx.BasicAuth("alice", "alice-secret")


def bearer(role: Role) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS.tokens[role]}"}


@attrs.define
class Judge:
    """An authorizer that notes what it is asked. It knows Alice, and says no to everything."""

    asked: list[Right] = attrs.field(factory=list)

    def may(self, principal: str, host: str, right: Right, name: str, *, asked_for: str = "") -> bool:
        assert (principal, host) == ("User:alice", "127.0.0.1")
        self.asked.append(right)
        return False

    async def is_right(self, user: str, password: str) -> bool:
        return (user, password) == ("alice", "alice-secret")

    def password_mark(self, user: str) -> bytes:
        return user.encode()


def calls() -> Iterator[tuple[str, str, Requirement]]:
    """Each method and address of the app, and what it requires."""
    for route in ROUTES:
        assert isinstance(route, Route), route
        path = re.sub(r"{([^}]*)}", lambda found: IN_PATHS.get(found[1], "orders"), route.path)
        for method, requirement in declared_by(route):
            yield method, path, requirement


@asynccontextmanager
async def asking(fake: FakeBroker, judge: Judge | None = None) -> AsyncIterator[httpx.AsyncClient]:
    view = attrs.evolve(fake.view, cluster=attrs.evolve(fake.view.cluster, authorization=judge or Judge()))
    app = create_app(view, logins=Logins(TOKENS, has_users=judge is not None))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("127.0.0.1", 5555))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=CHANGE) as client:
        yield client


# --- Declarations ---


def test_a_route_without_a_declaration_cannot_be_made() -> None:
    async def undeclared(request: Request) -> Response:
        raise AssertionError

    with pytest.raises(KeyError):
        Route("/undeclared", undeclared)
    assert all(isinstance(route, Route) for route in (*ROUTES, *login_routes(Logins(TOKENS, has_users=True))))


def test_the_page_of_rights_is_up_to_date() -> None:
    written = (ROOT / "docs" / "admin-rights.md").read_text(encoding="utf-8")
    assert written == render_admin_rights(), "write it again: python -m broker_admin.rights_page"


def test_what_is_changed_takes_more_than_the_role_of_a_viewer() -> None:
    for method, path, requirement in calls():
        assert (method == "GET") == (requirement.role in (None, Role.VIEWER)), (method, path)


def test_what_is_open_to_all_shows_nothing_of_the_broker() -> None:
    open_to_all = {path for _, path, requirement in calls() if requirement.role is None}
    assert open_to_all == {"/api", "/api/v1/openapi.json", "/healthz", "/livez", "/readyz", "/static/orders"}


async def test_each_address_asks_for_its_role(fake: FakeBroker) -> None:
    async with asking(fake) as client:
        for method, path, requirement in calls():
            for role in Role:
                if requirement.role is not None and not role.includes(requirement.role):
                    answer = await client.request(method, path, headers=bearer(role))
                    assert answer.status_code == 403, (method, path, role)
                    assert f"this needs the role {requirement.role.value}" in answer.text


async def test_each_address_asks_for_the_rights_that_it_declares_and_for_no_others(fake: FakeBroker) -> None:
    judge = Judge()
    async with asking(fake, judge) as client:
        for method, path, requirement in calls():
            judge.asked.clear()
            answer = await client.request(method, path, auth=ALICE)
            declared = [right for demand in requirement.demands for right in demand.rights]
            assert set(judge.asked) <= set(declared), (method, path)
            before = [demand for demand in requirement.demands if demand.name is not None]
            if before:
                assert answer.status_code == 403, (method, path, answer.text)
                assert judge.asked == list(before[0].rights), (method, path)


async def test_an_operator_may_not_change_who_may_log_in(fake: FakeBroker) -> None:
    async with asking(fake) as client:
        for key in (
            "sasl.enabled.mechanisms",
            "listener.name.a.plain.sasl.jaas.config",
            "ssl.keystore.key",
            "alerts.webhook.url",
        ):
            answer = await client.patch("/api/v1/config", json={key: "x"}, headers=bearer(Role.OPERATOR))
            assert answer.status_code == 403, answer.text
        answer = await client.patch("/api/v1/config", json={"num.io.threads": 12}, headers=bearer(Role.OPERATOR))
        assert answer.status_code == 200


async def test_an_operator_may_not_end_a_trial_of_who_may_log_in(tmp_path: Path) -> None:
    async with users_of(tmp_path, tokens=TOKENS) as live:
        key = "listener.name.clients.plain.sasl.jaas.config"
        tried = {key: 'x required user_alice="another" user_root="root-secret";'}
        admin = bearer(Role.ADMIN)
        answer = await live.http.patch("/api/v1/config?try_seconds=60", json=tried, headers=admin)
        assert answer.status_code == 200, answer.text
        number = live.broker.services.changes.changes[-1].number
        for end in ("keep", "undo"):
            answer = await live.http.post(f"/api/v1/changes/{number}:{end}", headers=bearer(Role.OPERATOR))
            assert answer.status_code == 403, answer.text
        assert (await live.http.post(f"/api/v1/changes/{number}:undo", headers=admin)).status_code == 200


# --- Users of the broker ---


@asynccontextmanager
async def users_of(directory: Path, tokens: AdminTokens | None = None) -> AsyncIterator[LiveAdmin]:
    """A broker that asks its authorizer, with two topics, and an HTTP client of its admin app."""
    async with open_live_admin(directory, **SETTINGS) as live:
        app = create_app(live.view, logins=Logins(tokens, has_users=True))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("127.0.0.1", 5555))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=CHANGE, timeout=None
        ) as http:
            for topic in ("orders", "payments"):
                made = await http.post("/api/v1/topics", json={"name": topic, "partitions": 1}, auth=ROOT_USER)
                assert made.status_code == 201, made.text
            yield attrs.evolve(live, http=http)


def allow(
    live: LiveAdmin, operation: AclOperation, name: str = "orders", *,
    principal: str = "User:alice", type_: ResourceType = ResourceType.TOPIC,
) -> None:  # fmt: skip
    """Follow an entry."""
    authorizer = live.broker.services.authorizer
    assert isinstance(authorizer, StandardAuthorizer)
    acl = StandardAcl(type_, name, PatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW)
    authorizer.add(str(acl).encode(), acl)


async def test_a_user_sees_and_changes_what_entries_allow(tmp_path: Path) -> None:
    async with users_of(tmp_path) as live:
        http = live.http

        async def status(method: str, path: str, **sent: Any) -> int:
            return (await http.request(method, path, auth=ALICE, **sent)).status_code

        async def names() -> list[str]:
            return [each["name"] for each in (await http.get("/api/v1/topics", auth=ALICE)).json()["items"]]

        records, configs = "/api/v1/topics/orders/records", "/api/v1/topics/orders/config"
        assert await names() == []
        assert await status("GET", "/api/v1/topics/orders") == 403
        assert await status("GET", "/api/v1/topics/no-such-topic") == 403
        allow(live, AclOperation.DESCRIBE)
        assert await names() == ["orders"]
        assert await status("GET", records) == 403
        allow(live, AclOperation.READ)
        assert await status("GET", records) == 200
        assert await status("PATCH", configs, json={"retention.ms": 1000}) == 403
        allow(live, AclOperation.ALTER_CONFIGS)
        assert await status("PATCH", configs, json={"retention.ms": 1000}) == 200
        denied = live.broker.services.audit_log.denied
        assert await status("PATCH", "/api/v1/config", json={"num.io.threads": 9}) == 403
        metrics = (await http.get("/metrics", auth=ROOT_USER)).text
        assert f"trio_broker_denied_requests_total {denied + 1}.0\n" in metrics
        found = await http.get("/api/v1/search?q=a", auth=ALICE)
        assert "payments" not in found.text
        changed = live.broker.services.changes.changes[-1]
        assert (changed.origin.principal, changed.origin.role) == ("User:alice", "")
        # Everything of a type is something else than one of it.
        allow(live, AclOperation.READ, name="*")
        assert await status("GET", "/api/v1/topics/__cluster_metadata/records") == 403
        assert await status("POST", "/api/v1/topics", json={"name": "new"}) == 403
        allow(live, AclOperation.CREATE, name="new")
        assert await status("POST", "/api/v1/topics", json={"name": "new"}) == 201
        outcome = await http.post("/api/v1/topics:delete", json={"topics": ["new"]}, auth=ALICE)
        assert outcome.json()["topics"][0]["error"] == "not authorized: DELETE on TOPIC"
        allow(live, AclOperation.DESCRIBE, name="kafka-cluster", type_=ResourceType.CLUSTER)
        assert await status("GET", "/api/v1/overview") == 200


async def test_a_delegation_token_is_seen_and_ended_by_whom_it_concerns_and_never_shown_whole(tmp_path: Path) -> None:
    bob = httpx.BasicAuth("bob", "bob-secret")
    async with users_of(tmp_path, TOKENS) as live:
        controller, http = live.broker.services.controller, live.http
        carol, alice, dave = (KafkaPrincipal("User", name) for name in ("carol", "alice", "dave"))
        # Made by Dave for Carol, and prolonged by Alice.
        record = await controller.create_delegation_token(NewToken(carol, dave, [alice], 0))
        secret = token_hmac("of the cluster", record.token_id)

        async def seen(auth: httpx.BasicAuth | None, **headers: Any) -> list[dict[str, Any]]:
            answers = [await http.get(path, auth=auth, headers=headers) for path in ("/api/v1/tokens", "/access")]
            for shown in (secret.hex(), base64.b64encode(secret).decode()):
                assert all(shown not in answer.text for answer in answers)
            found: list[dict[str, Any]] = answers[0].json()["items"]
            return found

        async def end(auth: httpx.BasicAuth, **given: Any) -> int:
            params = {"id": record.token_id, **given}
            return (await http.delete("/api/v1/tokens", params=params, auth=auth)).status_code

        [token] = await seen(ALICE)
        assert (token["owner"], token["requester"], token["renewers"]) == ("User:carol", "User:dave", ["User:alice"])
        assert token["expires_at_ms"] == record.expiration_timestamp
        assert [len(await seen(each)) for each in (bob, ROOT_USER)] == [0, 1]
        assert await seen(None, **bearer(Role.VIEWER)) == [token]
        viewer = await http.delete("/api/v1/tokens", params={"id": record.token_id}, headers=bearer(Role.VIEWER))
        assert (await end(bob), viewer.status_code) == (404, 403)
        allow(live, AclOperation.DESCRIBE_TOKENS, "User:carol", principal="User:bob", type_=ResourceType.USER)
        assert (await seen(bob), await end(bob)) == ([token], 403)
        allow(live, AclOperation.DESCRIBE, "kafka-cluster", principal="User:bob", type_=ResourceType.CLUSTER)
        assert record.token_id in (await http.get("/access", auth=bob)).text
        assert (await end(ALICE, dry_run="true"), len(await seen(ALICE))) == (200, 1)
        assert (await end(ALICE), await seen(ALICE), await end(ALICE)) == (200, [], 404)
        record = await controller.create_delegation_token(NewToken(carol, carol, [], 0))
        allow(live, AclOperation.ALTER, "kafka-cluster", principal="User:bob", type_=ResourceType.CLUSTER)
        assert (await end(ALICE), await end(bob)) == (404, 200)


async def test_a_super_user_may_do_everything_and_who_has_not_logged_in_is_anonymous(tmp_path: Path) -> None:
    async with users_of(tmp_path) as live:
        assert (await live.http.get("/api/v1/overview", auth=ROOT_USER)).status_code == 200
        assert (await live.http.get("/api/v1/overview")).status_code == 401
        page = await live.http.get("/topics/orders", headers={"accept": "text/html"})
        assert page.headers["location"] == "/login?next=%2Ftopics%2Forders"
        allow(live, AclOperation.DESCRIBE, principal="User:ANONYMOUS")
        assert (await live.http.get("/api/v1/topics/orders")).status_code == 200


async def test_with_tokens_nobody_is_let_in_who_brings_nothing(tmp_path: Path) -> None:
    async with users_of(tmp_path, tokens=TOKENS) as live:
        allow(live, AclOperation.DESCRIBE, principal="User:*")
        assert (await live.http.get("/api/v1/topics/orders")).status_code == 401
        assert (await live.http.get("/api/v1/topics/orders", headers=bearer(Role.VIEWER))).status_code == 200
        assert (await live.http.get("/api/v1/topics/orders", auth=ALICE)).status_code == 200


async def test_a_browser_logs_in_as_a_user_until_the_password_is_another(tmp_path: Path) -> None:
    async with users_of(tmp_path) as live:
        form = {"user": "alice", "password": "alice-secret", "next": "/topics"}
        assert (await live.http.post("/login", data=form | {"password": "wrong"})).status_code == 401
        assert (await live.http.post("/login", data=form)).headers["location"] == "/topics"
        assert (await live.http.get("/topics")).status_code == 200
        assert "Log out" in (await live.http.get("/topics")).text
        assert (await live.http.get("/topics/orders")).status_code == 403
        jaas = "listener.name.clients.plain.sasl.jaas.config"
        changed = {jaas: 'x required user_alice="another" user_root="root-secret";'}
        assert (await live.http.patch("/api/v1/config", json=changed, auth=ROOT_USER)).status_code == 200
        assert (await live.http.get("/topics/orders")).status_code == 401
