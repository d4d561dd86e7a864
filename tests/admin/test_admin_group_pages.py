"""Claims about the pages of groups as the server renders them, whatever clients call themselves."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import quote

import attrs
import httpx
import pytest

from broker_admin.group_detail import SHOWN_MEMBERS
from tests.admin.fake_broker import FakeBroker
from tests.admin.fake_groups import FakeGroup, fake_group, fake_member, fake_partition, fake_rebalance
from trio_broker.coordinator.group_event import GroupEventKind

HOSTILE = (
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


async def test_the_pages_say_of_how_many_partitions_the_lag_is_known_and_name_the_others(
    client: httpx.AsyncClient,
) -> None:
    assert (await client.get("/groups")).text.count("1 of 3 known") == 1
    page = (await client.get("/groups/-?id=fraud-scores")).text
    assert "1 of 3 known" in page
    text = " ".join("".join(inspect(page).text).split())
    assert "Lag is not known where nothing is committed yet, or the partition is gone: orders 1–2" in text
    assert "Lag is not known" not in (await client.get("/groups/-?id=checkout")).text


def hostile_group(text: str) -> FakeGroup:
    """A group in which everything that a client may choose is ``text``."""
    member = attrs.evolve(
        fake_member("c", 1, {text: (0, 1)}),
        member_id=text,
        group_instance_id=text,
        client_id=text,
        client_host=text,
    )
    group = fake_group(text, [member], protocol_type=text, protocol=text, state="Stable")
    group.partitions = [fake_partition(text, 0, member, 10, 3, 1.0)]
    group.rebalances = [
        fake_rebalance(0, 5, 1, 1, *((kind, member, text) for kind in GroupEventKind)) for _ in range(50)
    ]
    return group


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:16]))
async def test_whatever_clients_call_themselves_is_shown_as_text(
    client: httpx.AsyncClient, fake: FakeBroker, text: str
) -> None:
    calm = (
        inspect((await client.get("/groups")).text).tags
        | inspect((await client.get("/groups/-?id=checkout")).text).tags
    )
    fake.group_list = {text: hostile_group(text)}
    addresses = ["/groups"]
    if len(text) < 1000:
        addresses += [f"/groups/-?id={quote(text, safe='')}", f"/groups?search={quote(text, safe='')}"]
    for address in addresses:
        answer = await client.get(address)
        assert answer.status_code == 200
        found = inspect(answer.text)
        assert found.harm == []
        assert all(link.startswith(("/", "#")) for link in found.links)
        assert found.tags <= calm | {"q", "code"}
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u200b]", visible_part(answer.text))


def visible_part(page: str) -> str:
    """The page without the search field, which gives back what was typed."""
    return re.sub(r'<input type="search".*?>', "", page, flags=re.DOTALL)


async def test_a_page_of_the_longest_ids_stays_small(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    """A hundred groups whose names are 32 KB each are 3 MB of names, and three times that in links."""
    texts = [f"{number}{'<' * 32_000}" for number in range(100)]
    fake.group_list = {text: hostile_group(text) for text in texts}
    page = (await client.get("/groups")).text
    assert len(page) < 500_000
    assert "32001 characters" in page
    assert 'href="/groups/' not in page
    fake.group_list = {"short": hostile_group(texts[0])}
    page = (await client.get("/groups/-?id=short")).text
    assert len(page) < 1_000_000


async def test_each_group_is_a_link_to_its_page_whatever_its_id(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    ids = ["a/b", "..", "100%", "q?&group_id=x", "two words", "", "\x00", "日本語"]
    fake.group_list = {group_id: fake_group(group_id, generation=77) for group_id in ids}
    links = [link for link in inspect((await client.get("/groups")).text).links if link.startswith("/groups/")]
    assert len(links) == len(ids)
    for link in links:
        answer = await client.get(link)
        assert answer.status_code == 200
        assert "<dd>77</dd>" in answer.text


async def test_the_list_shows_state_lag_and_members(client: httpx.AsyncClient) -> None:
    text = " ".join(" ".join(inspect((await client.get("/groups?order=group_id")).text).text).split())
    assert "checkout 41 ms 3 – – Stable 3 3 classic cooperative-sticky" in text
    assert "clicks/to warehouse 21 min 0 s 36 169 – – Stable 2 6 consumer uniform" in text
    assert "connect-sinks – – – – Stable 2 0 classic connect sessioned" in text


async def test_the_list_is_searched_by_its_address_and_pages_keep_the_search(
    client: httpx.AsyncClient, fake: FakeBroker
) -> None:
    fake.group_list = {f"g&{number:03}": fake_group(f"g&{number:03}") for number in range(250)}
    page = (await client.get("/groups?search=g%26&type=classic&order=group_id")).text
    assert 'value="g&amp;"' in page
    assert "<option selected>classic</option>" in page
    assert "100 of 250" in page
    [further] = [link for link in inspect(page).links if link.startswith("/groups?") and "cursor=" in link]
    assert further.startswith("/groups?search=g%26&type=classic&order=group_id&cursor=")
    part = (await client.get(further)).text
    assert "g&amp;100" in part
    assert "/groups?search=g%26&type=classic&order=group_id" in inspect(part).links


async def test_a_groups_page_shows_members_partitions_and_why_it_rebalanced(client: httpx.AsyncClient) -> None:
    text = " ".join(" ".join(inspect((await client.get("/groups/-?id=checkout")).text).text).split())
    assert "GET /api/v1/groups/checkout" in text
    assert "took 10 s generation 6 2 members member timed out checkout-b from 10.0.0.12" in text
    assert "no heartbeat for 45000 ms" in text
    assert "2 × member joined again checkout-a" in text
    assert "orders 2 0 s 0 52 194 52 194 checkout-c 10.0.0.13" in text


async def test_newest_rebalances_come_first_and_one_under_way_says_so(client: httpx.AsyncClient) -> None:
    page = (await client.get("/groups/-?id=checkout")).text
    assert page.index("<span>generation 7</span>") < page.index("<span>generation 4</span>")
    under_way = (await client.get("/groups/-?id=fraud-scores")).text
    assert "<b>under way</b>" in under_way
    assert "6 members so far" in under_way


async def test_a_group_of_thousands_shows_some_and_says_how_many_more(
    client: httpx.AsyncClient, fake: FakeBroker
) -> None:
    members = [fake_member("c", number, {"t": (number,)}) for number in range(5000)]
    group = fake_group("large", members)
    group.partitions = [fake_partition("t", number, members[number], 10, 0, 0.0) for number in range(5000)]
    fake.group_list = {"large": group}
    page = (await client.get("/groups/-?id=large")).text
    assert f"and 4\u202f{5000 - SHOWN_MEMBERS - 4000} more members" in page
    assert "The 500 that are furthest behind, of 5\u202f000" in page
    assert len(page) < 600_000


async def test_a_group_that_is_gone_is_shown_in_words(client: httpx.AsyncClient) -> None:
    answer = await client.get("/groups/-", params={"id": "<b>gone"})
    assert answer.status_code == 404
    assert "There is no such group now" in answer.text
    assert "<b>gone" not in answer.text


async def test_a_broker_without_groups_says_how_to_get_one(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    fake.group_list = {}
    assert "No groups yet" in (await client.get("/groups")).text
    assert "No groups yet" in (await client.get("/")).text


async def test_a_search_without_result_says_how_many_there_are(client: httpx.AsyncClient) -> None:
    assert "there are 5" in (await client.get("/groups?search=nowhere")).text


@pytest.mark.parametrize("address", ["/groups", "/groups/-?id=checkout", "/groups/-?id=nobody"])
async def test_nothing_is_inline_and_nothing_comes_from_elsewhere_on_pages_of_groups(
    client: httpx.AsyncClient, address: str
) -> None:
    answer = await client.get(address)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", answer.text)
    assert not re.search(r"<script(?![^>]*\bsrc=)", answer.text)
    assert all(link.startswith(("/", "#")) for link in inspect(answer.text).links)
    assert "default-src 'self'" in answer.headers["content-security-policy"]
