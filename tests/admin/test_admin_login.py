"""Claims about tokens, roles and sessions: access, changes, and requests without a session."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from broker_admin.app import create_app
from broker_admin.logins import Logins
from broker_admin.routes.login_pages import local_target
from broker_admin.tokens import SESSION_SECONDS, AdminTokens, Role, TokenFileError, read_or_make_tokens
from tests.admin.chromium import Browser, Page, needs_chromium
from tests.admin.fake_broker import FakeBroker
from tests.admin.live_admin import LiveAdmin, served
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.sasl.failed_attempts import BURST, PER_SECOND

ADMIN = "admin-token-0123456789"
VIEWER = "viewer-token-0123456789"
OPERATOR = "operator-token-0123456789"
TOKENS = AdminTokens({Role.ADMIN: ADMIN, Role.OPERATOR: OPERATOR, Role.VIEWER: VIEWER})

CHANGE = {"x-requested-with": "pytest"}


@pytest.fixture
async def guarded(fake: FakeBroker) -> AsyncIterator[httpx.AsyncClient]:
    """A client without any token of a server that wants one."""
    app = create_app(fake.view, logins=Logins(TOKENS, has_users=False))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("127.0.0.1", 5555))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def log_in(client: httpx.AsyncClient, token: str, target: str = "/") -> httpx.Response:
    return await client.post("/login", data={"token": token, "next": target})


# --- The file ---


def test_a_file_is_made_with_a_token_for_each_role_that_only_its_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    made = read_or_make_tokens(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(made.tokens) == set(Role)
    assert all(len(token) >= 40 for token in made.tokens.values())
    assert read_or_make_tokens(path) == made


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no line 'admin TOKEN'"),
        (f"viewer {VIEWER}\n", "no line 'admin TOKEN'"),
        (f"admin {ADMIN}\nadmin {VIEWER}\n", "line 2: each line is a role"),
        (f"root {ADMIN}\n", "line 1: each line is a role"),
        ("admin short\n", "line 1: a token has at least 16"),
        (f"admin {ADMIN} {ADMIN}\n", "line 1: a token has at least 16 ASCII characters without spaces"),
        (f"admin {ADMIN}é\n", "line 1: a token has at least 16 ASCII"),
        (f"admin {ADMIN}\nviewer {ADMIN}\n", "two roles have the same token"),
        ("# " + "x" * 5000, "longer than 4096 bytes"),
        ("admin \udcff", "is no text file"),
    ],
)
def test_a_file_that_is_none_of_tokens_is_refused_with_the_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(TokenFileError, match=reason):
        read_or_make_tokens(path)


def test_comments_are_skipped_and_a_viewer_is_optional(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(f"# ours\n\nadmin   {ADMIN}\n")
    assert read_or_make_tokens(path).tokens == {Role.ADMIN: ADMIN}


def test_a_file_in_a_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match="cannot be made: No such file"):
        read_or_make_tokens(tmp_path / "nowhere" / "tokens")


# --- Sessions ---


def test_a_session_is_over_when_its_time_is() -> None:
    session = TOKENS.new_session(Role.VIEWER, 1000.7)
    assert TOKENS.session_role(session, 1000 + SESSION_SECONDS - 1) is Role.VIEWER
    assert TOKENS.session_role(session, 1000 + SESSION_SECONDS) is None


@pytest.mark.parametrize("forged", ["", ".", "..", "admin", "admin.9999999999.", "admin.x.0", "viewer.é.ff", "a.b.c.d"])
def test_what_is_no_session_opens_nothing(forged: str) -> None:
    assert TOKENS.session_role(forged, 0) is None


@pytest.mark.parametrize("expires", ["nan", "", "-", "9" * 5000])
def test_an_end_that_is_no_time_opens_nothing_though_it_is_signed(expires: str) -> None:
    signature = hmac.new(VIEWER.encode(), f"viewer.{expires}".encode(), hashlib.sha256).hexdigest()
    assert TOKENS.session_role(f"viewer.{expires}.{signature}", 0) is None


def test_a_session_cannot_be_made_longer_or_a_viewer_an_admin() -> None:
    role, expires, signature = TOKENS.new_session(Role.VIEWER, 0).split(".")
    assert TOKENS.session_role(f"{role}.{int(expires) + 1}.{signature}", 0) is None
    assert TOKENS.session_role(f"admin.{expires}.{signature}", 0) is None


def test_another_token_ends_the_sessions_of_its_role() -> None:
    changed = AdminTokens({Role.ADMIN: ADMIN, Role.VIEWER: VIEWER + "x"})
    assert changed.session_role(TOKENS.new_session(Role.VIEWER, 0), 0) is None
    assert changed.session_role(TOKENS.new_session(Role.ADMIN, 0), 0) is Role.ADMIN


def test_brokers_with_other_tokens_have_other_cookies() -> None:
    assert AdminTokens({Role.ADMIN: VIEWER}).cookie_name != TOKENS.cookie_name


def test_tokens_are_not_shown() -> None:
    assert ADMIN not in repr(TOKENS)


# --- Requests ---


@pytest.mark.parametrize(
    "path", ["/api/v1/brokers/1", "/metrics", "/nothing", "/api/v1/brokers/1/events", "/api/v1/openapi.json"]
)
async def test_without_a_session_there_is_nothing_but_the_login(guarded: httpx.AsyncClient, path: str) -> None:
    answer = await guarded.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="trio-broker"'
    assert answer.headers["content-type"] == "application/problem+json"
    assert "content-security-policy" in answer.headers


async def test_a_page_without_a_session_leads_to_the_login_and_back(guarded: httpx.AsyncClient) -> None:
    answer = await guarded.get("/groups?search=a%26b", headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fgroups%3Fsearch%3Da%2526b"
    form = await guarded.get(answer.headers["location"])
    assert form.status_code == 200
    assert 'name="next" value="/groups?search=a%26b"' in form.text


async def test_the_login_page_shows_nothing_of_the_broker(guarded: httpx.AsyncClient, fake: FakeBroker) -> None:
    text = (await guarded.get("/login")).text
    node = fake.view.node.identity.description()
    assert node.cluster_id not in text
    assert node.version not in text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/login", "/static/page.css"])
async def test_probes_and_the_login_page_are_open(guarded: httpx.AsyncClient, path: str) -> None:
    assert (await guarded.get(path)).status_code == 200


@pytest.mark.parametrize("token", [ADMIN, VIEWER])
async def test_a_token_in_the_header_may_read(guarded: httpx.AsyncClient, token: str) -> None:
    assert (await guarded.get("/api/v1/brokers/1", headers=bearer(token))).status_code == 200


@pytest.mark.parametrize(
    "value", ["Bearer wrong-token-0123456", "Bearer", "Bearer é", f"Basic {ADMIN}", ADMIN, f"Bearer {ADMIN}x"]
)
async def test_another_header_opens_nothing(guarded: httpx.AsyncClient, value: str) -> None:
    answer = await guarded.get("/api/v1/brokers/1", headers={b"authorization": value.encode()})
    assert answer.status_code == 401


async def test_a_viewer_changes_nothing_and_an_admin_does(guarded: httpx.AsyncClient, fake: FakeBroker) -> None:
    change = {"num.io.threads": 12}
    refused = await guarded.patch("/api/v1/config", json=change, headers=CHANGE | bearer(VIEWER))
    assert refused.status_code == 403
    assert refused.json()["detail"] == "this needs the role operator, and the token is that of viewer"
    assert fake.journal == []
    assert (await guarded.patch("/api/v1/config", json=change, headers=CHANGE | bearer(ADMIN))).status_code == 200


async def test_a_login_gives_a_cookie_that_no_script_and_no_other_site_can_use(guarded: httpx.AsyncClient) -> None:
    answer = await log_in(guarded, f" {ADMIN} ", "/groups")
    assert (answer.status_code, answer.headers["location"]) == (303, "/groups")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ADMIN not in cookie
    assert (await guarded.get("/api/v1/brokers/1")).status_code == 200
    out = await guarded.post("/logout")
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert (await guarded.get("/api/v1/brokers/1")).status_code == 401


async def test_a_wrong_token_beside_a_session_opens_nothing(guarded: httpx.AsyncClient) -> None:
    await log_in(guarded, ADMIN)
    assert (await guarded.get("/api/v1/brokers/1", headers=bearer("wrong-token-0123456"))).status_code == 401


async def test_a_viewer_may_log_out(guarded: httpx.AsyncClient) -> None:
    await log_in(guarded, VIEWER)
    assert (await guarded.post("/logout")).status_code == 303


async def test_a_wrong_token_gets_the_form_again(guarded: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    answer = await log_in(guarded, "<script>guess</script>")
    assert answer.status_code == 401
    assert "Wrong token." in answer.text
    assert "guess" not in answer.text
    assert caplog.messages == ["a login from 127.0.0.1 was refused: wrong token"]


@pytest.mark.parametrize("by_form", [True, False])
async def test_who_fails_too_often_is_refused_unseen_and_nobody_else_is(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture, by_form: bool
) -> None:
    clock = ManualClock()
    app = create_app(fake.view, logins=Logins(TOKENS, has_users=False, clock=clock))

    async def attempt(peer: str, token: str) -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(peer, 5555))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            if by_form:
                return await log_in(client, token)
            return await client.get("/api/v1/brokers/1", headers=bearer(token))

    for _ in range(BURST):
        assert (await attempt("10.0.0.1", "wrong-token-0123456")).status_code == 401
    closed = await attempt("10.0.0.1", ADMIN)
    assert closed.status_code == 429
    assert int(closed.headers["retry-after"]) > 0
    assert len(caplog.messages) == BURST
    assert (await attempt("10.0.0.2", ADMIN)).status_code in (200, 303)
    clock.advance(2 / PER_SECOND)
    assert (await attempt("10.0.0.1", ADMIN)).status_code in (200, 303)


async def test_a_session_goes_on_where_its_address_has_failed_too_often_which_is_counted(fake: FakeBroker) -> None:
    app = create_app(fake.view, logins=Logins(TOKENS, has_users=False, clock=ManualClock()))
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 5555))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await log_in(client, ADMIN)
        for _ in range(BURST):
            await log_in(client, "wrong-token-0123456")
        assert (await log_in(client, ADMIN)).status_code == 429
        assert (await client.get("/api/v1/brokers/1")).status_code == 200
        assert f"trio_broker_failed_admin_logins_total {BURST + 1}.0" in (await client.get("/metrics")).text


@pytest.mark.parametrize(
    ("target", "where"),
    [
        ("/groups?id=a", "/groups?id=a"),
        ("", "/"),
        ("//elsewhere.example", "/"),
        ("/\\elsewhere.example", "/"),
        ("https://elsewhere.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nset-cookie: x", "/"),
    ],
)
def test_a_login_leads_to_this_site_only(target: str, where: str) -> None:
    assert local_target(target) == where


async def test_a_form_of_another_site_logs_nobody_out(guarded: httpx.AsyncClient) -> None:
    await log_in(guarded, ADMIN)
    answer = await guarded.post("/logout", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403


async def test_without_tokens_there_is_no_login(client: httpx.AsyncClient) -> None:
    assert (await client.get("/login")).status_code == 404
    assert (await client.get("/api/v1/brokers/1")).status_code == 200


# --- In a browser ---


async def give(page: Page, token: str) -> None:
    """Send the form, and wait for the page that answers."""
    await page.evaluate("document.body.dataset.isSent = ''")
    await page.evaluate(f"document.querySelector('#token').value = {json.dumps(token)}")
    await page.evaluate("document.querySelector('button[type=submit]').click()")
    await page.until("document.body?.dataset.isSent === undefined && document.readyState === 'complete'")


PATCH = """fetch("/api/v1/config", {method: "PATCH", body: '{"num.io.threads": 12}',
    headers: {"x-requested-with": "admin page", "content-type": "application/json"}}).then((answer) => answer.status)"""


@needs_chromium
async def test_a_browser_logs_in_as_each_role_and_out_again(live: LiveAdmin, browser: Browser) -> None:
    async with served(create_app(live.view, logins=Logins(TOKENS, has_users=False))) as url:
        page = await browser.open_page("about:blank")
        await page.command("Page.navigate", url=f"{url}/config?live=true")
        await page.until("location.pathname === '/login' && document.readyState === 'complete'")
        assert await page.evaluate("document.activeElement.id") == "token"
        await give(page, "wrong-token-0123456789")
        assert await page.text("[role=alert]") == "Wrong token."
        await give(page, VIEWER)
        assert await page.evaluate("location.pathname + location.search") == "/config?live=true"
        assert await page.text(".badge") == "read-only"
        assert await page.evaluate("document.cookie") == ""
        assert await page.evaluate(PATCH) == 403
        await page.evaluate("document.querySelector('form[action=\"/logout\"] button').click()")
        await page.until("location.pathname === '/login' && document.readyState === 'complete'")
        assert await page.evaluate("fetch('/api/v1/brokers/1').then((answer) => answer.status)") == 401
        await give(page, ADMIN)
        await page.until("location.pathname === '/'")
        assert await page.evaluate("document.querySelector('.badge')") is None
        assert await page.evaluate(PATCH) == 200
    [change] = live.view.cluster.changes.list()
    assert (change.origin.channel.value, change.origin.role) == ("page", "admin")
