"""The answers to clients that lack a right: the table that our answers and those of a real Kafka are compared with.

The requests are made from the declarations of ``kafka_wire``, so that no API can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from bench.largest_requests import request_with
from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.error_counts import ERROR_WALKS
from kafka_wire.headers import read_response_header
from tests.handlers.two_brokers import FROM_BROKER, HERE, Locator, Peers, in_cluster
from tests.handlers.wire_client import WireClient, new_dispatcher
from trio_broker.handlers.support import rights
from trio_broker.handlers.support.registry import ServedApi
from trio_broker.handlers.support.rights import ERRORS, Right

BY_NAME = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12, ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}
"""The last versions in which topics go by name; ids are in tests of their own."""

OLDER = {ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.DELETE_TOPICS: 5, ApiKey.METADATA: 9}

AUTHORIZATION = frozenset(ERRORS.values())

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

INSTEAD: dict[tuple[ApiKey, Right], set[ErrorCode]] = {
    # Another right does, too.
    (ApiKey.CREATE_TOPICS, rights.CREATE_CLUSTER): set(),
    (ApiKey.CREATE_TOPICS, rights.CREATE_TOPIC): set(),
    (ApiKey.DELETE_TOPICS, rights.DELETE_CLUSTER): set(),
    (ApiKey.DELETE_TOPICS, rights.DELETE_TOPIC): set(),
    (ApiKey.WRITE_TXN_MARKERS, rights.ALTER_CLUSTER): set(),
    (ApiKey.WRITE_TXN_MARKERS, rights.CLUSTER_ACTION): set(),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, rights.DESCRIBE_TOPIC): set(),
    (ApiKey.METADATA, rights.CREATE_CLUSTER): set(),
    (ApiKey.METADATA, rights.CREATE_TOPIC): set(),
    (ApiKey.INIT_PRODUCER_ID, rights.IDEMPOTENT_WRITE): set(),
    (ApiKey.INIT_PRODUCER_ID, rights.WRITE_TOPIC): set(),
    # Left out without an error.
    (ApiKey.CREATE_TOPICS, rights.DESCRIBE_TOPIC_CONFIGS): set(),
    (ApiKey.DESCRIBE_CLUSTER, rights.DESCRIBE_CLUSTER): set(),
    (ApiKey.METADATA, rights.DESCRIBE_CLUSTER): set(),
    (ApiKey.LIST_GROUPS, rights.DESCRIBE_CLUSTER): set(),
    (ApiKey.LIST_GROUPS, rights.DESCRIBE_GROUP): set(),
    (ApiKey.LIST_TRANSACTIONS, rights.DESCRIBE_TRANSACTIONAL_ID): set(),
    (ApiKey.DESCRIBE_TRANSACTIONS, rights.DESCRIBE_TOPIC): set(),
    # There is no such group, which is the error of all its partitions.
    (ApiKey.OFFSET_DELETE, rights.READ_TOPIC): set(),
    # Refused before, as the client has not logged in; ``test_delegation_tokens`` has those that have.
    (ApiKey.CREATE_DELEGATION_TOKEN, rights.CREATE_TOKENS): set(),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, rights.DESCRIBE_DELEGATION_TOKEN): set(),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, rights.DESCRIBE_TOKENS): set(),
    # The request is about something else, or about what comes after.
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, rights.DESCRIBE_TOPIC): set(),
    (ApiKey.PRODUCE, rights.CLUSTER_ACTION): set(),
    (ApiKey.FETCH, rights.CLUSTER_ACTION): set(),
    (ApiKey.LIST_OFFSETS, rights.CLUSTER_ACTION): set(),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, rights.CLUSTER_ACTION): set(),
    (ApiKey.ADD_PARTITIONS_TO_TXN, rights.CLUSTER_ACTION): set(),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, rights.DESCRIBE_TOPIC): set(),
    **{(ApiKey.FIND_COORDINATOR, right): set() for right in (rights.DESCRIBE_TRANSACTIONAL_ID, rights.CLUSTER_ACTION)},
    **{
        (key, right): set()
        for key, cluster, group in (
            (ApiKey.DESCRIBE_CONFIGS, rights.DESCRIBE_CLUSTER_CONFIGS, rights.DESCRIBE_GROUP_CONFIGS),
            (ApiKey.ALTER_CONFIGS, rights.ALTER_CLUSTER_CONFIGS, rights.ALTER_GROUP_CONFIGS),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, rights.ALTER_CLUSTER_CONFIGS, rights.ALTER_GROUP_CONFIGS),
        )
        for right in (cluster, group)
    },
}
"""The authorization errors in the answer to a request of a client that lacks one right alone, where that right's own
is not among them."""

BOTH: dict[tuple[ApiKey, frozenset[Right]], set[ErrorCode]] = {
    (ApiKey.CREATE_TOPICS, frozenset({rights.CREATE_CLUSTER, rights.CREATE_TOPIC})): {TOPIC_DENIED},
    (ApiKey.DELETE_TOPICS, frozenset({rights.DELETE_CLUSTER, rights.DELETE_TOPIC})): {TOPIC_DENIED},
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, frozenset({rights.DESCRIBE_TOPIC, rights.CLUSTER_ACTION})): {TOPIC_DENIED},
    (ApiKey.WRITE_TXN_MARKERS, frozenset({rights.ALTER_CLUSTER, rights.CLUSTER_ACTION})): {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    },
}
"""The same for a client that lacks two rights, of which one would be enough."""


def lacks(api: ServedApi) -> Iterator[tuple[frozenset[Right], set[ErrorCode]]]:
    """What a client of ``api`` may lack, and the authorization errors in its answer then."""
    yield frozenset(), set()
    for right in sorted(api.rights, key=str):
        yield frozenset({right}), INSTEAD.get((api.api_key, right), {right.error})
    for (key, lacking), codes in BOTH.items():
        if key == api.api_key:
            yield lacking, codes


def version_of(api: ServedApi) -> int:
    """The version in which ``api`` is asked."""
    return {**BY_NAME, **OLDER}.get(api.api_key, api.versions.high)


def body_of(api: ServedApi) -> bytes:
    return request_with(api.request, version_of(api), (), 0)


def authorization_errors(api: ServedApi, answer: bytes) -> set[ErrorCode]:
    """Those in the bytes of an answer."""
    version = version_of(api)
    _, position = read_response_header(api.api_key, version, answer)
    response, _ = decode(api.request.RESPONSE, version, answer, position)
    return {ErrorCode(code) for code in ERROR_WALKS[type(response)](response) or ()} & AUTHORIZATION


@attrs.define
class AllBut:
    """An authorizer that allows everything but ``denied``, and remembers what it was asked for."""

    denied: frozenset[Right]
    asked: set[Right] = attrs.Factory(set)
    generation: int = 0

    def authorize(self, principal, host, operation, resource_type, name):
        self.asked.add(Right(operation, resource_type))
        return Right(operation, resource_type) not in self.denied

    def authorize_by_resource_type(self, principal, host, operation, resource_type):
        return self.authorize(principal, host, operation, resource_type, "")

    def reason(self, principal, host, operation, resource_type, name):
        return "a test"


def client_of(wire: WireClient, authorizer: AllBut, *, between_brokers: bool = False) -> WireClient:
    """A client of the broker of ``wire`` that has what ``authorizer`` says."""
    wire.services.authorizer = authorizer
    if between_brokers:
        return in_cluster(wire, Locator(HERE), Peers(), FROM_BROKER)
    return WireClient(new_dispatcher(wire.services), wire.clock)
