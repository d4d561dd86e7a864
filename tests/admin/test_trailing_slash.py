"""Addresses with a slash too many at their end: pages lead to the address without it, the API names it."""

from __future__ import annotations

import httpx
import pytest

from broker_admin.problems import PROBLEM_MEDIA_TYPE


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("/topics/", "/topics"),
        ("/topics///", "/topics"),
        ("/metrics/", "/metrics"),
        ("/groups/?search=a%26b&order=group_id", "/groups?search=a%26b&order=group_id"),
        ("/topics/caf%C3%A9%3F/", "/topics/caf%C3%A9%3F"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_page_with_a_slash_at_its_end_leads_to_the_page_without(
    client: httpx.AsyncClient, method: str, address: str, location: str
) -> None:
    """By a relative address, which holds behind a proxy that has another scheme or name."""
    answer = await client.request(method, address)
    assert (answer.status_code, answer.headers["location"]) == (308, location)


@pytest.mark.parametrize("address", ["/nothing/", "//evil.example/", "/topics/a/nothing/", "/%2Fevil.example/"])
async def test_no_redirect_leads_to_what_is_not_there(client: httpx.AsyncClient, address: str) -> None:
    assert (await client.get(f"http://localhost{address}")).status_code == 404


@pytest.mark.parametrize(("method", "address"), [("GET", "/api/v1/config/"), ("PATCH", "/api/v1/config/")])
async def test_the_api_has_nothing_at_an_address_with_a_slash_at_its_end_and_says_so(
    client: httpx.AsyncClient, method: str, address: str
) -> None:
    """A redirect would be an empty answer to a client that follows none, as curl does not."""
    answer = await client.request(method, address, headers={"x-requested-with": "pytest"}, json={})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == PROBLEM_MEDIA_TYPE
    assert answer.json()["detail"] == "there is nothing at this address; at /api/v1/config, without the slash, there is"


async def test_the_api_does_not_promise_an_address_that_is_not_there_either(client: httpx.AsyncClient) -> None:
    assert "without the slash" not in (await client.get("/api/v1/nothing/")).json()["detail"]
