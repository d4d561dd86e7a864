"""Claims about who may call the admin server from a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from broker_admin.app import create_app
from broker_admin.security import host_name
from tests.admin.fake_broker import FakeBroker


@pytest.fixture
async def client(fake: FakeBroker) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fake.view, allowed_hosts=("broker.example",))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:9644") as opened:
        yield opened


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9644", "127.0.0.1:1", "[::1]:9644", "broker.example:80"])
async def test_our_own_names_are_answered_on_any_port(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/healthz", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.example@localhost", "localhost/", "localhost:x", "", "10.0.0.9"],
)
@pytest.mark.parametrize("path", ["/", "/api/v1/config", "/metrics", "/healthz", "/static/overview.js", "/nothing"])
async def test_a_name_that_is_not_ours_gets_nothing_anywhere(client: httpx.AsyncClient, host: str, path: str) -> None:
    """This is what kills DNS rebinding: the attacker's page is of its own name, whatever that resolves to."""
    answer = await client.get(path, headers={"host": host})
    assert answer.status_code == 403
    assert "Host" in answer.json()["detail"]


async def test_the_address_that_was_dialled_is_a_name_of_ours(fake: FakeBroker) -> None:
    """Health probes call a pod by its address; the ASGI scope says it is the connection's own."""
    transport = httpx.ASGITransport(create_app(fake.view, allowed_hosts=()))
    async with httpx.AsyncClient(transport=transport, base_url="http://10.1.2.3:9644") as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/healthz", headers={"host": "10.1.2.4:9644"})).status_code == 403


@pytest.mark.parametrize(
    ("header", "name"),
    [("Broker:1", "broker"), ("[::1]", "::1"), ("a b", "a b"), ("x:99999", None), ("[::1", None), ("a?b", None)],
)
def test_host_names_are_taken_out_of_their_header(header: str, name: str | None) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize("origin", ["http://localhost:9644", "https://localhost:9644"])
async def test_our_own_origin_is_answered(client: httpx.AsyncClient, origin: str) -> None:
    assert (await client.get("/api/v1/brokers/1/threads", headers={"origin": origin})).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:9645", "http://localhost", ""])
async def test_pages_of_other_origins_get_nothing(client: httpx.AsyncClient, origin: str) -> None:
    answer = await client.get("/api/v1/brokers/1/threads", headers={"origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


async def test_a_preflight_is_not_agreed_to(client: httpx.AsyncClient) -> None:
    answer = await client.options(
        "/api/v1/config",
        headers={"origin": "http://evil.example", "access-control-request-method": "PATCH"},
    )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 403),
        ({"content-type": "application/json", "x-requested-with": " "}, 403),
        ({"x-requested-with": "curl"}, 415),
        ({"x-requested-with": "curl", "content-type": "text/plain"}, 415),
        ({"x-requested-with": "curl", "content-type": "application/x-www-form-urlencoded"}, 415),
        ({"x-requested-with": "curl", "content-type": "application/json; charset=utf-8"}, 200),
    ],
)
async def test_a_change_needs_what_no_form_can_send(
    client: httpx.AsyncClient, fake: FakeBroker, headers: dict[str, str], status: int
) -> None:
    answer = await client.patch("/api/v1/config", content=b'{"num.io.threads": 12}', headers=headers)
    assert answer.status_code == status
    assert bool(fake.journal) == (status == 200)


@pytest.mark.parametrize("path", ["/", "/api/v1/config", "/api/v1/nothing", "/static/page.css", "/metrics"])
async def test_every_answer_forbids_what_a_page_needs_to_be_attacked(client: httpx.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


async def test_answers_of_the_api_are_not_cached_and_assets_are_checked(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/v1/config")).headers["cache-control"] == "no-store"
    assert (await client.get("/")).headers["cache-control"] == "no-store"
    asset = await client.get("/static/overview.js")
    assert asset.headers["cache-control"] == "no-cache"
    again = await client.get("/static/overview.js", headers={"if-none-match": asset.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["../overview.html", "..%2Ftemplates%2Foverview.html", "nothing.js", "overview.html"])
async def test_only_the_pages_own_files_are_served(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.get(f"/static/{name}")).status_code == 404
