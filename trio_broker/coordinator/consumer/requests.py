"""What a heartbeat of the consumer protocol must look like before any group sees it.

Source: Kafka's GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trio_broker.coordinator.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, UNCHANGED_TIMEOUT

MAX_SUBSCRIBED_NAMES = 20_000
"""Topic names in one subscription: as many as there can be topics. Kafka has no limit, but every new subscription costs
a walk over its names."""


MAX_ID_CHARACTERS = 255
"""Of a member's ids and rack: they are in every record of the member. Kafka has no limit; its clients send 36 and
allow 249.
"""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Check the fields, alone and together.

    Raises:
        Refused: ``INVALID_REQUEST``, or ``UNSUPPORTED_ASSIGNOR``.
    """
    _check_names(request, version)
    names = len(request.subscribed_topic_names or ())
    _require(names <= MAX_SUBSCRIBED_NAMES, f"{names} topic names, at most {MAX_SUBSCRIBED_NAMES} are allowed")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "only a static member, with an instance id, leaves for a while")
    else:
        _require(request.member_epoch >= STATIC_LEAVE_EPOCH, f"{request.member_epoch} is no member epoch")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        text = f"there is no assignor {request.server_assignor!r}; those there are: {', '.join(assignors)}"
        raise KafkaError(text, code=ErrorCode.UNSUPPORTED_ASSIGNOR)


def _check_names(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    # KIP-1082: before version 1 the broker makes the id, so a member that joins has none.
    if version >= 1 or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH:
        _require(not _is_blank(request.member_id), "the member id is empty")
    _require(not _is_blank(request.group_id), "the group id is empty")
    _require(not _is_blank(request.instance_id), "the instance id is empty")
    _require(not _is_blank(request.rack_id), "the rack id is empty")
    longest = max(len(name or "") for name in (request.member_id, request.instance_id, request.rack_id))
    _require(longest <= MAX_ID_CHARACTERS, f"an id has {longest} characters, at most {MAX_ID_CHARACTERS} are allowed")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    _require(request.rebalance_timeout_ms != UNCHANGED_TIMEOUT, "a member that joins has to give its rebalance timeout")
    _require(request.topic_partitions == [], "a member that joins cannot have partitions, and has to say so")
    _require(
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
        "a member that joins has to subscribe, to topic names or to a regular expression",
    )


def _is_blank(name: str | None) -> bool:
    return name is not None and not name.strip()


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise KafkaError(otherwise, code=ErrorCode.INVALID_REQUEST)
