"""The requests of a storm: what members of groups say, right, nearly right, and as large as can be.

A request is made from its declaration with random values, which are then replaced, in most places, by what would be
right: what the broker's answers say of the groups and their members. What remains random or is replaced by
something wrong is what is looked for. Requests as large as can be, of every kind, are made by hand.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from fuzz.decoders import mutated, random_message
from fuzz.raw_client import (
    framed,
    request_bytes,
)
from kafka_wire.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.list_groups import ListGroupsRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafka_wire.schema import ArrayOf, StructOf, fields_of

GROUP_REQUESTS: Final = (
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetDeleteRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    DeleteGroupsRequest,
    FindCoordinatorRequest,
)

CLASSIC_REQUESTS: Final = (JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest)

REQUESTS_PER_ROUND: Final = {
    JoinGroupRequest: 6,
    SyncGroupRequest: 4,
    ConsumerGroupHeartbeatRequest: 8,
    OffsetCommitRequest: 3,
}
"""How many times as often as the others, which only look: in every version, once for each time."""

MONSTROUS: Final = 0.004
BROKEN: Final = 0.05
"""How likely a request is to be as large as can be, or to be broken in its bytes."""

TOPIC: Final = "storm"

GROUPS: Final = ("storm-0", "storm-1", "storm-2", "storm-3", "größe-😀\u202e", "nul-\0-\r\n", "l" * 300, "storm-4")
MONSTROUS_GROUPS: Final = ("monster-0", "monster-1", "m" * 30_000)
"""Where monstrous requests go: these groups may be too large for a record, which is UNKNOWN_SERVER_ERROR in Kafka."""

NO_TEXT: Final = "\x7f\x7f\x7f"
"""In the place of half a surrogate pair, which has as many bytes in UTF-8 where it is let in."""
HALF_A_PAIR: Final = b"\xed\xa0\x80"

TIMEOUTS_MS: Final = (300, 500, 800, 1_000, 1_000)
WRONG_NUMBERS: Final = (-1, 0, 1, -2, 2**31 - 1, -(2**31), 299)
WRONG_TEXTS: Final = ("", " ", "\0", "nobody", "ü" * 100, "\u202e", NO_TEXT, "x" * 250)
KNOWN_MEMBERS: Final = 8
"""The latest members of a group that are spoken for."""

PROTOCOL_NAMES: Final = ("range", "roundrobin", "sticky")
INSTANCES: Final = ("one", "two", "three")

SUBSCRIPTIONS: Final = (
    encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC]), 0),
    encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC, "nowhere"]), 3),
    b"",
    b"\0\0\xff\xff\xff\xff",
    b"\0\3\x7f\xff\xff\xff",
)

PATTERNS: Final = (
    "st.*",
    ".*",
    "nothing",
    "(",
    r"(a+)+\1",
    "(?:[so]?){1000}x",
    "|".join(f".*a.{{{gap}}}b.*" for gap in range(60)),
    r"\pL" * 90,
    r"\pL" * 3_000,
    "a" * 10_000,
    "((a{100}){100}){10}",
    NO_TEXT,
)


# --- What is known of the groups, from the broker's answers ---


@attrs.frozen
class Known:
    """A member as an answer describes it: what a request in its name should say."""

    group_id: str
    member_id: str = ""
    epoch: int = -1
    others: tuple[str, ...] = ()


@attrs.define
class Memory:
    """What the latest answers say."""

    known: dict[str, deque[Known]] = attrs.field(factory=dict)

    def note(self, group_id: str, response: Any) -> None:
        """Take in an answer."""
        if isinstance(response, JoinGroupResponse) and response.member_id:
            others = tuple(member.member_id for member in response.members)
            self.keep(Known(group_id, response.member_id, response.generation_id, others))
        elif isinstance(response, ConsumerGroupHeartbeatResponse) and response.member_id:
            self.keep(Known(group_id, response.member_id, response.member_epoch))

    def keep(self, member: Known) -> None:
        self.known.setdefault(member.group_id, deque(maxlen=KNOWN_MEMBERS)).append(member)

    def recall(self, group_id: str, number: int) -> Known:
        """One of the members known of a group, mostly the latest; the same ``number`` may mean another one later."""
        members = self.known.get(group_id)
        if not members:
            return Known(group_id)
        return members[number % len(members)] if number % 2 else members[-1]


# --- What is sent ---


@attrs.frozen
class Sent:
    """A request that an answer is expected to. ``request`` is None where the answer cannot be read."""

    request: Any
    version: int
    is_excused: bool


@attrs.define
class StormMaker:
    """Makes the requests of one storm."""

    chance: random.Random
    topic_id: bytes
    memory: Memory = attrs.field(factory=Memory)
    member: Known = Known(GROUPS[0])
    monstrous_share: float = MONSTROUS
    monsters: Mapping[str, Callable[[str], tuple[Any, int]]] = attrs.field(init=False)
    previous: bytes = b""

    def __attrs_post_init__(self) -> None:
        self.monsters = monsters(self.topic_id)

    def requests(self) -> Iterator[tuple[bytes, Sent]]:
        """Yield frames forever, each with what is to be known about its answer."""
        kinds = [
            (kind, version)
            for kind in GROUP_REQUESTS
            for version in range(kind.VERSIONS.low, kind.VERSIONS.high + 1)
            for _ in range(REQUESTS_PER_ROUND.get(kind, 1))
        ]
        while True:
            for kind, version in self.chance.sample(kinds, len(kinds)):
                yield self.monstrous() if self.chance.random() < self.monstrous_share else self.common(kind, version)

    def monstrous(self) -> tuple[bytes, Sent]:
        """A request as large as can be; most answers to these are too large for our own decoder, too."""
        make = self.monsters[self.chance.choice(list(self.monsters))]
        request, version = make(self.chance.choice(MONSTROUS_GROUPS))
        return framed(request_bytes(request, version, client_id="storm")), Sent(None, version, is_excused=True)

    def common(self, kind: type[Any], version: int) -> tuple[bytes, Sent]:
        """A request that is right, or nearly."""
        self.member = self.memory.recall(self.chance.choice(self.groups_for(kind)), self.chance.randrange(100))
        request = self.plausible(random_message(kind, version, self.chance), version)
        if kind is ConsumerGroupHeartbeatRequest and self.chance.random() < 0.5:
            self.join_properly(request, version)
        body = request_bytes(request, version, client_id="storm").replace(NO_TEXT.encode(), HALF_A_PAIR)
        previous, self.previous = self.previous, body
        # Kafka has no better word for a member that first asks for an id and then comes with an instance id.
        is_excused = kind is JoinGroupRequest and bool(request.member_id) and request.group_instance_id is not None
        if self.chance.random() < BROKEN:
            body = body[:8] + mutated(body[8:], previous[8:], self.chance)
            return framed(body), Sent(None, version, is_excused)
        return framed(body), Sent(request, version, is_excused)

    def groups_for(self, kind: type[Any]) -> tuple[str, ...]:
        """The groups such a request is about: members of both protocols meet in all of them, but do not always."""
        if self.chance.random() < 0.2 or kind not in (*CLASSIC_REQUESTS, ConsumerGroupHeartbeatRequest):
            return GROUPS
        return GROUPS[::2] if kind in CLASSIC_REQUESTS else GROUPS[1::2]

    def join_properly(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """Make of a heartbeat one that joins: too many fields have to be right for that to come by chance."""
        request.member_id = self.chance.choice(("a", "b", "c", "d")) if version else ""
        request.member_epoch = 0
        request.rebalance_timeout_ms = self.chance.choice(TIMEOUTS_MS)
        request.instance_id = self.chance.choice((None, None, None, *INSTANCES))
        request.topic_partitions = []
        request.subscribed_topic_names = [TOPIC]
        request.server_assignor = self.chance.choice((None, "uniform", "range"))
        request.rack_id = None

    def plausible(self, message: Any, version: int) -> Any:
        """Fill in what would be right, in most places."""
        for field in fields_of(type(message)):
            if version not in field.versions:
                continue
            value = getattr(message, field.name)
            if (replacement := self.replacement(message, field.name, value)) is not None:
                setattr(message, field.name, replacement[0])
            elif isinstance(field.type, StructOf) and value is not None:
                self.plausible(value, version)
            elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf):
                for item in value or ():
                    self.plausible(item, version)
        return message

    def replacement(self, message: Any, name: str, value: Any) -> tuple[Any] | None:
        """A better value for a field, in a tuple since None may be one; None where the random one is as good."""
        match name:
            case "group_id" | "key":
                # Rarely another name: each that commits something is one group more for good.
                return (self.member.group_id if self.chance.random() < 0.98 else self.chance.choice(WRONG_TEXTS),)
            case "coordinator_keys" | "groups_names" | "group_ids":
                return (self.some_groups(),)
            case "groups" if isinstance(message, DescribeGroupsRequest):
                return (self.some_groups(),)
            case "member_id":
                return (self.text(self.member.member_id),)
            case "group_instance_id" | "instance_id":
                return (self.chance.choice((None, None, None, None, *INSTANCES, self.text("one"))),)
            case "generation_id" | "generation_id_or_member_epoch" | "member_epoch":
                return (self.number(self.member.epoch),)
            case "session_timeout_ms" | "rebalance_timeout_ms":
                return (self.timeout(),)
            case "protocol_type":
                return ("consumer" if self.chance.random() < 0.9 else self.chance.choice(("connect", "", NO_TEXT)),)
            case "protocols":
                names = ["range", *self.chance.sample(PROTOCOL_NAMES, self.chance.randint(0, 3))]
                if self.chance.random() < 0.1:
                    names = names[1:]
                subscriptions = [self.chance.choice(SUBSCRIPTIONS) for _ in names]
                pairs = zip(names, subscriptions, strict=True)
                return ([JoinGroupRequestProtocol(name=each, metadata=metadata) for each, metadata in pairs],)
            case "protocol_name":
                return (self.chance.choice(("range", "range", "range", "roundrobin", None)),)
            case "assignments":
                ids = [*self.member.others, *self.chance.choices(("nobody", *self.member.others), k=2)]
                data = self.chance.choice((b"", b"\0\0\0\0\0\0", self.chance.randbytes(30)))
                return ([SyncGroupRequestAssignment(member_id=each, assignment=data) for each in ids],)
            case _:
                return self.offsets_replacement(message, name, value)

    def offsets_replacement(self, message: Any, name: str, value: Any) -> tuple[Any] | None:
        """As ``replacement``, for positions and subscriptions."""
        match name:
            case "name" | "topic":
                return (TOPIC if self.chance.random() < 0.9 else self.chance.choice(("nowhere", "", NO_TEXT)),)
            case "topic_id":
                return (
                    self.topic_id if self.chance.random() < 0.9 else self.chance.choice((bytes(16), bytes(range(16)))),
                )
            case "partition_index":
                return (0 if self.chance.random() < 0.95 else self.chance.choice(WRONG_NUMBERS),)
            case "partition_indexes":
                return ([0, 0, 7, -1],)
            case "committed_offset":
                return (self.chance.choice((self.chance.randrange(1 << 40), 0, -1, 2**63 - 1, -(2**63))),)
            case "committed_metadata":
                return (self.chance.choice((None, "", "\0", "m" * 4_096, "m" * 4_097, "😀" * 2_048, NO_TEXT)),)
            case "retention_time_ms":
                return (self.chance.choice((-1, -1, 1, 2**63 - 1, -(2**63))),)
            case "server_assignor":
                return (self.chance.choice((None, None, None, None, "uniform", "range", self.text("uniform"))),)
            case "rack_id":
                return (self.chance.choice((None, None, None, "rack", self.text("rack"))),)
            case "subscribed_topic_names":
                return (self.chance.choice((None, [TOPIC], [TOPIC, "nowhere", TOPIC], [], [""], [NO_TEXT])),)
            case "subscribed_topic_regex":
                return (self.chance.choice((None, None, "", self.chance.choice(PATTERNS))),)
            case "topic_partitions":
                mine = TopicPartitions(topic_id=self.topic_id, partitions=[0])
                alien = TopicPartitions(topic_id=bytes(16), partitions=[-1, 2**31 - 1])
                return (self.chance.choice((None, [], [mine], [mine, mine], [alien])),)
            case "reason":
                return (self.text("because"),)
        return None

    def some_groups(self) -> list[str]:
        return [self.member.group_id, *self.chance.choices((*GROUPS, *WRONG_TEXTS), k=self.chance.randrange(4))]

    def text(self, right: str) -> str:
        return right if self.chance.random() < 0.85 else self.chance.choice(WRONG_TEXTS)

    def number(self, right: int) -> int:
        if self.chance.random() < 0.8:
            return right
        return self.chance.choice((*WRONG_NUMBERS, max(right, 1) - 1, min(right, 2**31 - 2) + 1))

    def timeout(self) -> int:
        """Never a long one that is right: the fuzzer would wait as long for such a member."""
        return self.chance.choice(TIMEOUTS_MS) if self.chance.random() < 0.9 else self.chance.choice((-1, 0, -(2**31)))


def monsters(topic_id: bytes) -> dict[str, Callable[[str], tuple[Any, int]]]:
    """Requests that are as large as they can be, by what is large in them, to be sent about a group."""
    zero = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    many_names = [str(number) for number in range(20_000)]

    def join(group_id: str, protocols: list[JoinGroupRequestProtocol]) -> tuple[Any, int]:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=500,
            rebalance_timeout_ms=500,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        return request, 3

    def consume(group_id: str, **fields: Any) -> tuple[Any, int]:
        given = {"member_id": "monster", "member_epoch": 0, "rebalance_timeout_ms": 500, "topic_partitions": []}
        return ConsumerGroupHeartbeatRequest(group_id=group_id, **{**given, **fields}), 1

    return {
        "thousands of protocols": lambda group_id: join(
            group_id, [JoinGroupRequestProtocol(name=f"p{number}", metadata=b"") for number in range(5_000)]
        ),
        "metadata": lambda group_id: join(group_id, [JoinGroupRequestProtocol(name="p", metadata=bytes(3 << 20))]),
        "too much metadata": lambda group_id: join(
            group_id, [JoinGroupRequestProtocol(name="p", metadata=bytes(40 << 20))]
        ),
        "a subscription to a million topics": lambda group_id: join(
            group_id,
            [JoinGroupRequestProtocol(name="p", metadata=struct.pack(">hi", 0, 10**6) + bytes(2 * 10**6 + 4))],
        ),
        "an assignment": lambda group_id: (
            SyncGroupRequest(
                group_id=group_id,
                generation_id=1,
                member_id="monster",
                assignments=[SyncGroupRequestAssignment(member_id="monster", assignment=bytes(8 << 20))],
            ),
            3,
        ),
        "many assignments": lambda group_id: (
            SyncGroupRequest(
                group_id=group_id,
                generation_id=1,
                member_id="monster",
                assignments=[SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in many_names],
            ),
            3,
        ),
        "leaving members": lambda group_id: (
            LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=name) for name in many_names]),
            5,
        ),
        "commits in one topic": lambda group_id: (
            OffsetCommitRequest(
                group_id=group_id,
                member_id="",
                topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[zero] * 90_000)],
            ),
            9,
        ),
        "commits in unknown topics": lambda group_id: (
            OffsetCommitRequest(
                group_id=group_id,
                member_id="",
                topics=[OffsetCommitRequestTopic(name=name, partitions=[zero]) for name in many_names],
            ),
            9,
        ),
        "fetched partitions": lambda group_id: (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group_id,
                        topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[*range(200_000)])],
                    )
                ]
            ),
            9,
        ),
        "fetched groups": lambda group_id: (
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in [group_id, *many_names]]
            ),
            9,
        ),
        "deleted partitions": lambda group_id: (
            OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
                ]
                * 20_000,
            ),
            0,
        ),
        "deleted groups": lambda group_id: (DeleteGroupsRequest(groups_names=[group_id, *many_names]), 2),
        "described groups": lambda group_id: (DescribeGroupsRequest(groups=[group_id, *many_names]), 5),
        "groups with long names": lambda group_id: (
            DescribeGroupsRequest(groups=["n" * 30_000 + name for name in many_names[:100]]),
            5,
        ),
        "subscribed names": lambda group_id: consume(group_id, subscribed_topic_names=many_names),
        "too many subscribed names": lambda group_id: consume(group_id, subscribed_topic_names=3 * many_names),
        "long subscribed names": lambda group_id: consume(
            group_id, subscribed_topic_names=[name * 10 for name in many_names]
        ),
        "long ids": lambda group_id: consume(
            group_id, member_id="i" * 30_000, instance_id="j" * 30_000, subscribed_topic_names=[]
        ),
        "owned partitions": lambda group_id: consume(
            group_id, topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=[0] * 200_000)]
        ),
        "a slow pattern": lambda group_id: consume(group_id, subscribed_topic_regex=PATTERNS[6]),
    }
