"""Claims about the pages of groups as the server renders them, whatever clients call themselves."""

from __future__ import annotations

import itertools
import re
from urllib.parse import quote

import attrs
import httpx
import pytest

from broker_admin.group_detail import SHOWN_MEMBERS, GroupDetail
from broker_admin.texts import number_text, short_duration_text
from tests.admin.fake_broker import FakeBroker
from tests.admin.fake_groups import FakeGroup, fake_group, fake_member, fake_partition, fake_rebalance
from tests.admin.page_reading import HOSTILE_TEXTS, assert_nothing_is_inline, assert_shows, inspect, page_of
from trio_broker.coordinator.group_event import GroupEventKind


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


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: repr(text[:16]))
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


async def test_each_field_of_a_group_reaches_its_row(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    page = await page_of(client, "/groups", search="clicks")
    lag = fake.group_list["clicks/to warehouse"].lag()
    amounts = f"{short_duration_text(lag.lag_seconds or 0)} {number_text(lag.lag_records or 0)} – –"
    counts = f"{lag.group.member_count} {lag.partition_count} {lag.group.type.value} {lag.group.protocol}"
    assert_shows(page, f"{lag.group.group_id} {amounts} {lag.group.state} {counts}")
    assert_shows(await page_of(client, "/groups", search="fraud"), "1 of 3 known")
    assert_shows(
        await page_of(client, "/groups", search="connect"), "connect-sinks – – – –", "classic connect sessioned"
    )


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


async def test_each_field_of_the_model_reaches_the_page_of_a_group(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    member = fake_member(
        "till", 91, {"assigned": (3, 4)}, group_instance_id="till-one", epoch=17, subscribed_topics=("subscribed",)
    )
    group = fake_group(
        "everything", [member], state="Reconciling", generation=1234, pending_offsets=56,
        protocol_type="connect", protocol="sessioned",
    )  # fmt: skip
    group.partitions = [
        fake_partition("read", 7, member, 90_000, 1_111, 95.0),
        fake_partition("lagless", 8, None, 5_000, None),
    ]
    group.rebalances = [
        fake_rebalance(
            fake.now_ms - 60_000, 10_240, 1233, 41, *[(GroupEventKind.MEMBER_TIMED_OUT, member, "no heartbeat")] * 2
        ),
        fake_rebalance(fake.now_ms - 2_000, None, 1234, 42),
    ]
    fake.group_list["everything"] = group
    shown = {
        "group": (
            "GET /api/v1/groups/everything", "Reconciling", "Generation 1234", "Pending offsets 56",
            "classic connect sessioned",
        ),
        "offsets": ("Lag, time 1 min 35 s", "Lag, records 1 111 1 of 2 known"),
        "members": (
            f"till leader instance till-one 10.0.0.91 · {member.member_id} · epoch 17",
            "assigned 3–4 1 min 35 s 1 111 subscribed",
        ),
        "partitions": ("read 7 1 min 35 s 1 111 88 889 90 000 till 10.0.0.91", "lagless 8 – – – 5 000 –"),
        "unknown": ("Lag is not known where nothing is committed yet, or the partition is gone: lagless 8 Topic",),
        "entries": (
            "took 10 s generation 1233 41 members", "2 × member timed out till instance till-one from 10.0.0.91",
            "no heartbeat", "under way generation 1234 42 members so far",
        ),
        "chart": ("generation 1233", "the longest 10 s"),
    }  # fmt: skip
    assert set(shown) == {field.name for field in attrs.fields(GroupDetail)}
    page = await page_of(client, "/groups/everything")
    assert_shows(page, *itertools.chain.from_iterable(shown.values()))
    assert page.index("<b>under way") < page.index("took <b>"), "the newest comes first"
    assert "Lag is not known" not in await page_of(client, "/groups/checkout")


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
    assert_nothing_is_inline(answer.text)
    assert "default-src 'self'" in answer.headers["content-security-policy"]
