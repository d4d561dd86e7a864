"""Claims about the groups of the HTTP API, and about what its lists, lines and pictures are made of."""

from __future__ import annotations

import json
from urllib.parse import quote

import attrs
import httpx
import pytest
import trio

from broker_admin.group_detail import SHOWN_MEMBERS, SHOWN_PARTITIONS, GroupDetail, group_detail
from broker_admin.group_list import GroupsQuery, select_groups
from broker_admin.server import AdminAddress, serve_admin
from broker_admin.texts import member_tail, partitions_text, shown_text
from broker_admin.timeline_chart import rebalance_entry, timeline_chart
from tests.admin.fake_broker import FakeBroker, FakeGroups
from tests.admin.fake_groups import FakeGroup, fake_group, fake_groups, fake_member, fake_partition, fake_rebalance
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupOffsets, GroupRates, LagTrend

HOSTILE_IDS = [
    "a/b",
    "a/timeline",
    "timeline",
    "../../etc",
    "100%",
    "a%2Fb",
    "q?x=1&group_id=other",
    "#top",
    "two words",
    "a+b",
    "-",
    "\x00\x1b[31m\r\n",
    "<script>alert(1)</script>",
    "\u202eevil",
    "日本語 🐟",
    "é" * 10_000,
]
"""Ids that clients may choose, each of which breaks some way of putting it into an address.

The last is as long as the address that httpx can still send.
"""


def add_groups(fake: FakeBroker, count: int) -> None:
    """As many groups as a large cluster has, without members."""
    fake.group_list = {f"group-{number:04}": fake_group(f"group-{number:04}") for number in range(count)}


# --- the list ---


async def test_the_list_shows_state_members_and_lag_of_each_group(client: httpx.AsyncClient) -> None:
    body = (await client.get("/api/v1/groups")).json()
    assert (body["total"], body["matching"], body["next_cursor"], body["is_complete"]) == (5, 5, None, True)
    assert [group["group_id"] for group in body["items"]] == [
        "checkout",
        "clicks/to warehouse",
        "connect-sinks",
        "fraud-scores",
        "nightly-report",
    ]
    assert body["items"][1] == {
        "rates": None,
        "group_id": "clicks/to warehouse",
        "type": "consumer",
        "state": "Stable",
        "protocol_type": "consumer",
        "protocol": "uniform",
        "generation": 12,
        "member_count": 2,
        "pending_offsets": 0,
        "partition_count": 6,
        "partitions_without_lag": 0,
        "lag_records": 36_169,
        "lag_seconds": 1_260.0,
        "last_rebalance_at_ms": 1_779_998_500_000,
    }


async def test_the_list_shows_how_fast_a_group_reads_once_that_is_known(
    client: httpx.AsyncClient, fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = GroupRates(
        over_seconds=60.0,
        consumed_per_second=10.0,
        produced_per_second=12.5,
        lag_change_per_second=2.5,
        trend=LagTrend.GROWING,
        catches_up_in_seconds=None,
    )
    lag = attrs.evolve(fake_group("readers").lag(), rates=rates)

    async def report(_groups: FakeGroups) -> GroupLagReport:
        return GroupLagReport(collected_at_ms=fake.now_ms, is_complete=True, groups=(lag,))

    monkeypatch.setattr(FakeGroups, "report", report)
    [item] = (await client.get("/api/v1/groups")).json()["items"]
    assert item["rates"] == {
        "over_seconds": 60.0,
        "consumed_per_second": 10.0,
        "produced_per_second": 12.5,
        "lag_change_per_second": 2.5,
        "trend": "growing",
        "catches_up_in_seconds": None,
    }


async def test_partitions_without_a_known_lag_are_counted_in_the_list_and_named_by_the_offsets(
    client: httpx.AsyncClient,
) -> None:
    [group] = (await client.get("/api/v1/groups?search=fraud")).json()["items"]
    assert (group["partition_count"], group["partitions_without_lag"], group["lag_records"]) == (3, 2, 420)
    offsets = (await client.get("/api/v1/groups/fraud-scores/offsets")).json()
    assert offsets["partitions_without_lag"] == 2
    assert [each["partition"] for each in offsets["partitions"] if each["lag_records"] is None] == [1, 2]


async def test_a_group_without_offsets_has_no_lag_rather_than_none_at_all(client: httpx.AsyncClient) -> None:
    body = (await client.get("/api/v1/groups?search=connect")).json()
    [group] = body["items"]
    assert (group["partition_count"], group["lag_records"], group["lag_seconds"]) == (0, None, None)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("search=CLICK", ["clicks/to warehouse"]),
        ("search=/", ["clicks/to warehouse"]),
        ("state=empty", ["nightly-report"]),
        ("state=Empty&state=PreparingRebalance", ["fraud-scores", "nightly-report"]),
        ("type=consumer", ["clicks/to warehouse"]),
        ("type=classic&state=Stable", ["checkout", "connect-sinks"]),
        ("search=nowhere", []),
        ("order=-lag_records&limit=2", ["clicks/to warehouse", "fraud-scores"]),
        (
            "order=-lag_seconds",
            ["nightly-report", "clicks/to warehouse", "fraud-scores", "checkout", "connect-sinks"],
        ),
        ("order=-members&limit=1", ["fraud-scores"]),
        ("order=-last_rebalance&limit=2", ["fraud-scores", "checkout"]),
        ("order=-unknown&limit=1", ["fraud-scores"]),
        ("search=&state=&type=&order=", None),
    ],
)
async def test_the_list_can_be_searched_ordered_and_cut(
    client: httpx.AsyncClient, query: str, expected: list[str] | None
) -> None:
    answer = await client.get(f"/api/v1/groups?{query}")
    ids = [group["group_id"] for group in answer.json()["items"]]
    assert ids == expected or (expected is None and len(ids) == 5)


@pytest.mark.parametrize(
    "query",
    [
        "order=colour",
        "type=share",
        "limit=0",
        "limit=1001",
        "limit=ten",
        "limit=٣",
        "cursor=nonsense",
        f"search={'x' * 1001}",
    ],
)
async def test_a_query_that_means_nothing_is_refused_with_what_would(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/api/v1/groups?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["detail"]
    assert (await client.get(f"/groups?{query}")).status_code == 400


async def test_thousands_of_groups_come_a_hundred_at_a_time(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    add_groups(fake, 3000)
    seen, cursor = [], ""
    while cursor is not None:
        part = (await client.get("/api/v1/groups", params={"cursor": cursor})).json()
        assert (part["total"], len(part["items"])) == (3000, 100)
        seen += [group["group_id"] for group in part["items"]]
        cursor = part["next_cursor"]
    assert seen == [f"group-{number:04}" for number in range(3000)]


async def test_equal_lags_stay_in_the_order_of_their_ids(fake: FakeBroker) -> None:
    add_groups(fake, 300)
    selected = select_groups(await fake.view.cluster.groups.report(), GroupsQuery(order="-lag_seconds", limit=1000))
    ids = [lag.group.group_id for lag in selected.items]
    assert ids == sorted(ids)


# --- one group ---


async def test_a_group_is_shown_with_members_and_their_assignments(client: httpx.AsyncClient) -> None:
    body = (await client.get("/api/v1/groups/checkout")).json()
    assert (body["state"], body["type"], body["protocol_type"], body["protocol"], body["generation"]) == (
        "Stable",
        "classic",
        "consumer",
        "cooperative-sticky",
        7,
    )
    assert body["member_count"] == 3
    assert body["leader"] == body["members"][0]["member_id"]
    assert body["members"][2] == {
        "member_id": "checkout-c-0000000d-5f1c-4d0e-9b7a-0242ac120002",
        "group_instance_id": "checkout-c",
        "client_id": "checkout-c",
        "client_host": "/10.0.0.13",
        "subscribed_topics": ["orders"],
        "assignment": {"orders": [2]},
        "epoch": None,
    }


async def test_members_of_a_large_group_come_in_parts(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    members = [fake_member("c", number, {}) for number in range(1200)]
    fake.group_list = {"large": fake_group("large", members)}
    body = (await client.get("/api/v1/groups/large")).json()
    assert (body["member_count"], len(body["members"])) == (1200, 1000)
    rest = (await client.get("/api/v1/groups/large?offset=1000&limit=500")).json()
    assert [member["member_id"] for member in rest["members"]] == [member.member_id for member in members[1000:]]
    assert (await client.get("/api/v1/groups/large?limit=-1")).status_code == 400


async def test_offsets_are_shown_by_partition_with_their_sum_and_maximum(client: httpx.AsyncClient) -> None:
    body = (await client.get("/api/v1/groups/checkout/offsets")).json()
    assert (body["lag_records"], body["lag_seconds"], body["partition_count"]) == (3, 0.041, 3)
    assert body["partitions"][1] == {
        "committed_at_ms": None,
        "expires_at_ms": None,
        "topic": "orders",
        "partition": 1,
        "member_id": "checkout-b-0000000c-5f1c-4d0e-9b7a-0242ac120002",
        "committed_offset": 52_094,
        "log_end_offset": 52_097,
        "lag_records": 3,
        "lag_seconds": 0.041,
    }


async def test_the_timeline_shows_who_did_it_why_and_how_long_it_took(client: httpx.AsyncClient) -> None:
    rebalances = (await client.get("/api/v1/groups/checkout/timeline")).json()["rebalances"]
    assert [rebalance["generation"] for rebalance in rebalances] == [4, 5, 6, 7]
    assert (rebalances[2]["duration_ms"], rebalances[2]["member_count"]) == (10_240, 2)
    assert rebalances[2]["causes"] == [
        {
            "kind": "member timed out",
            "at_ms": 1_779_999_100_000,
            "generation": 6,
            "member_id": "checkout-b-0000000c-5f1c-4d0e-9b7a-0242ac120002",
            "group_instance_id": None,
            "client_id": "checkout-b",
            "client_host": "/10.0.0.12",
            "reason": "no heartbeat for 45000 ms",
        }
    ]


async def test_a_rebalance_under_way_has_no_end_yet(client: httpx.AsyncClient) -> None:
    [rebalance] = (await client.get("/api/v1/groups/fraud-scores/timeline")).json()["rebalances"]
    assert (rebalance["ended_at_ms"], rebalance["duration_ms"]) == (None, None)


@pytest.mark.parametrize("what", ["", "/offsets", "/timeline"])
async def test_a_group_that_is_not_there_is_404(client: httpx.AsyncClient, what: str) -> None:
    answer = await client.get(f"/api/v1/groups/nobody{what}")
    assert (answer.status_code, "no such group" in answer.json()["detail"]) == (404, True)
    assert (await client.get("/api/v1/groups/checkout/nonsense")).status_code == 404
    assert (await client.put(f"/api/v1/groups/checkout{what}")).status_code == 405


# --- ids ---


@pytest.mark.parametrize("group_id", HOSTILE_IDS, ids=lambda group_id: repr(group_id[:12]))
async def test_any_id_can_be_put_into_a_path(client: httpx.AsyncClient, fake: FakeBroker, group_id: str) -> None:
    fake.group_list[group_id] = fake_group(group_id, generation=77)
    path = f"/api/v1/groups/{quote(group_id, safe='')}"
    body = (await client.get(path)).json()
    assert (body["group_id"], body["generation"]) == (group_id, 77)
    assert (await client.get(f"{path}/offsets")).json()["group_id"] == group_id
    assert (await client.get(f"{path}/timeline")).json() == {"rebalances": []}


@pytest.mark.parametrize("group_id", ["", ".", "..", *HOSTILE_IDS], ids=lambda group_id: repr(group_id[:12]))
async def test_what_no_path_can_carry_goes_into_the_query(
    client: httpx.AsyncClient, fake: FakeBroker, group_id: str
) -> None:
    fake.group_list[group_id] = fake_group(group_id, generation=77)
    for address in ("/api/v1/groups/-", "/api/v1/groups/-/offsets"):
        answer = await client.get(address, params={"id": group_id})
        assert answer.json()["group_id"] == group_id


async def test_the_longest_ids_reach_us_through_a_real_connection(fake: FakeBroker) -> None:
    """Percent-encoded, an id of 32 KB is an address of 96 KB."""
    longest = "ü" * 16_383
    fake.group_list[longest] = fake_group(longest, generation=77)
    async with trio.open_nursery() as nursery:
        address: AdminAddress = await nursery.start(serve_admin, fake.view, "127.0.0.1", 0)
        body = await get_by_hand(address, f"/api/v1/groups/{quote(longest, safe='')}")
        assert json.loads(body)["generation"] == 77
        body = await get_by_hand(address, "/api/v1/groups/clicks%2Fto%20warehouse/timeline")
        assert len(json.loads(body)["rebalances"]) == 1
        nursery.cancel_scope.cancel()


async def get_by_hand(address: AdminAddress, target: str) -> bytes:
    """The body of an answer, asked for without a client that would have an opinion about the target."""
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        answer = b"".join([piece async for piece in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return body


async def test_json_carries_hostile_ids_whole_and_in_ascii(client: httpx.AsyncClient, fake: FakeBroker) -> None:
    member = attrs.evolve(fake_member("c", 1, {}), client_id="\x00\u2028</script>\u202e")
    fake.group_list = {"g": fake_group("g", [member])}
    answer = await client.get("/api/v1/groups/g")
    assert answer.content.isascii()
    assert json.loads(answer.content)["members"][0]["client_id"] == member.client_id


# --- one at a time ---


@attrs.define
class SlowDisk(FakeGroups):
    """Groups of a broker that has to look at the disk for the lag of each."""

    readers: int = 0
    most_readers: int = 0

    async def offsets(self, group_id: str) -> GroupOffsets | None:
        self.readers += 1
        self.most_readers = max(self.readers, self.most_readers)
        await trio.sleep(1)
        self.readers -= 1
        return await FakeGroups.offsets(self, group_id)


@pytest.fixture
def slow_disk(fake: FakeBroker) -> SlowDisk:
    groups = SlowDisk(fake)
    fake.view = attrs.evolve(fake.view, cluster=attrs.evolve(fake.view.cluster, groups=groups))
    return groups


async def test_lag_is_read_from_disk_for_one_group_at_a_time(
    slow_disk: SlowDisk, client: httpx.AsyncClient, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(client.get, "/api/v1/groups/checkout/offsets")
            nursery.start_soon(client.get, "/groups/-?id=checkout")
    assert slow_disk.most_readers == 1


async def test_the_list_never_asks_for_a_single_groups_offsets(slow_disk: SlowDisk, client: httpx.AsyncClient) -> None:
    for address in ("/api/v1/groups", "/groups", "/"):
        assert (await client.get(address)).status_code == 200
    assert slow_disk.most_readers == 0


# --- what the page is made of ---


def test_causes_are_shown_by_kind_and_the_worst_gives_the_severity() -> None:
    members = [fake_member("c", number, {}) for number in range(200)]
    rebalance = fake_rebalance(
        0, 100, 2, 199,
        *((GroupEventKind.MEMBER_REJOINED, member, "") for member in members[1:]),
        (GroupEventKind.MEMBER_TIMED_OUT, members[0], ""),
    )  # fmt: skip
    entry = rebalance_entry(rebalance)
    assert entry.severity == "bad"
    assert [(line.kind, line.count, len(line.shown)) for line in entry.lines] == [
        (GroupEventKind.MEMBER_TIMED_OUT, 1, 1),
        (GroupEventKind.MEMBER_REJOINED, 199, 4),
    ]


def test_the_picture_holds_every_rebalance_within_its_bounds() -> None:
    entries = [rebalance_entry(fake_rebalance(at_ms, 40, 1, 1)) for at_ms in (0, 1, 3_600_000, 86_400_000)]
    entries.append(rebalance_entry(fake_rebalance(86_400_500, None, 2, 1)))
    chart = timeline_chart(entries, 86_402_000)
    assert chart is not None
    assert all(0 <= bar.left <= 100 and 0 <= bar.top <= 100 for bar in chart.bars)
    assert [bar.left for bar in chart.bars] == sorted(bar.left for bar in chart.bars)
    assert chart.longest == "1.5 s"


@pytest.mark.parametrize("now_ms", [-5, 0, 10])
def test_the_picture_of_one_rebalance_survives_a_clock_that_was_set_back(now_ms: int) -> None:
    for duration_ms in (None, 0, -3, 40):
        chart = timeline_chart([rebalance_entry(fake_rebalance(0, duration_ms, 1, 1))], now_ms)
        assert chart is not None
        assert all(0 <= bar.left <= 100 and 0 <= bar.top <= 100 for bar in chart.bars)


def test_without_rebalances_there_is_no_picture() -> None:
    assert timeline_chart([], 0) is None


def test_a_page_shows_the_partitions_that_are_furthest_behind_when_there_are_too_many() -> None:
    group = fake_group("g", [fake_member("c", number, {}) for number in range(SHOWN_MEMBERS + 50)])
    group.partitions = [fake_partition("t", index, None, 10_000, index, float(index)) for index in range(2000)]
    detail = detail_of(group)
    assert [row.partition.partition for row in detail.partitions] == list(range(2000 - SHOWN_PARTITIONS, 2000))
    assert len(detail.members) == SHOWN_MEMBERS


def detail_of(group: FakeGroup) -> GroupDetail:
    return group_detail(group.snapshot, group.offsets(), group.rebalances, 0)


def test_partitions_without_a_known_lag_are_named_by_topic() -> None:
    groups = fake_groups(0)
    assert detail_of(groups["fraud-scores"]).unknown == (("orders", (1, 2)),)
    assert detail_of(groups["checkout"]).unknown == ()


def test_newest_rebalances_come_first_with_who_did_it_and_why() -> None:
    entries = detail_of(fake_groups(0)["checkout"]).entries
    assert [entry.rebalance.generation for entry in entries] == [7, 6, 5, 4]
    [timed_out] = entries[1].lines
    assert [(each.client_id, each.client_host, each.reason) for each in timed_out.shown] == [
        ("checkout-b", "/10.0.0.12", "no heartbeat for 45000 ms")
    ]
    assert (GroupEventKind.MEMBER_REJOINED, 2) in [(line.kind, line.count) for line in entries[2].lines]


def test_a_partition_is_shown_with_the_member_that_owns_it() -> None:
    owners = [row.owner and row.owner.client_id for row in detail_of(fake_groups(0)["checkout"]).partitions]
    assert owners == ["checkout-a", "checkout-b", "checkout-c"]


def test_a_members_lag_is_that_of_its_partitions() -> None:
    first, second = fake_member("a", 1, {"t": (0, 1)}), fake_member("b", 2, {})
    group = fake_group("g", [first, second])
    group.partitions = [
        fake_partition("t", 0, first, 100, 7, 2.0),
        fake_partition("t", 1, first, 100, 5, None),
        fake_partition("t", 2, None, 100, 90, 9.0),
    ]
    rows = detail_of(group).members
    assert [(row.lag_records, row.lag_seconds) for row in rows] == [(12, 2.0), (None, None)]


# --- texts ---


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain-id", "plain-id"),
        ("a\x00b\x1b[31m", "a\\u{0}b\\u{1b}[31m"),
        ("line\nbreak", "line\\u{a}break"),
        ("\u202eevil\u2066", "\\u{202e}evil\\u{2066}"),
        ("\x7f\x85\xa0", "\\u{7f}\\u{85}\\u{a0}"),
        ("日本語", "日本語"),
        ("x" * 70, "x" * 64 + "…"),
        ("", ""),
    ],
)
def test_foreign_text_is_shown_in_one_line_of_what_can_be_seen(text: str, shown: str) -> None:
    assert shown_text(text) == shown


@pytest.mark.parametrize(
    ("partitions", "text"), [((), ""), ((3,), "3"), ((2, 0, 1, 5), "0–2, 5"), ((7, 8, 10, 11), "7–8, 10–11")]
)
def test_partitions_are_shown_as_ranges(partitions: tuple[int, ...], text: str) -> None:
    assert partitions_text(partitions) == text


def test_a_member_id_beside_its_client_id_is_shown_by_its_end() -> None:
    assert member_tail("rdkafka-6ba7b810-9dad-11d1-80b4-00c04fd430c8", "rdkafka") == "…00c04fd430c8"
    assert member_tail("rdkafka", "rdkafka") == "rdkafka"
    assert member_tail("something-else", "rdkafka") == "something-else"
