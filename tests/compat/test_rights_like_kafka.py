"""A real Kafka answers clients that lack a right as we do, by the same requests.

Nobody logs in: rights differ by the address of a client. The administrator, and Kafka itself, are at one address of the
loopback network; the client is at another one, and may do everything but what is denied to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from bench.largest_requests import topic_name
from kafka_wire.acl import CLUSTER_NAME, AclOperation, AclPermissionType, ResourceType
from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_acls import AclCreation, CreateAclsRequest
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.delete_acls import DeleteAclsRequest
from kafka_wire.messages.describe_acls import DescribeAclsRequest
from tests.compat.kafka_process import KafkaProcess
from tests.compat.scenario_client import Connection
from tests.handlers.acls import entry, matching
from tests.handlers.missing_rights import authorization_errors, body_of, lacks, version_of
from tests.waits import eventually
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.handlers.support.registry import ServedApi, served_apis
from trio_broker.handlers.support.rights import Right
from trio_broker.testing.process import BrokerProcess

ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"

TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Until there are entries.
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}

LEFT_OUT = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.DESCRIBE_ACLS}
"""Kafka ends the connection: their entries, made from declarations, have an operation of no meaning."""

STRICTER = "PRODUCE without WRITE on TRANSACTIONAL_ID"
"""Kafka asks for the right to a transactional id where a batch is transactional, and we wherever one is named."""

Errors = dict[str, set[ErrorCode]]
"""The authorization errors in an answer, by what was asked and denied."""


@attrs.define
class Comparison:
    """A broker with the rights of one client that are changed for each request."""

    port: int
    admin: Connection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.admin = Connection(self.port, source=ADMIN)
        allowed = [granted(type_, host) for type_ in TYPES for host in (ADMIN, CLIENT)]
        # As one: from the first on everybody else is denied.
        self.create(allowed)

    def create(self, entries: Collection[AclCreation]) -> None:
        self.admin.send(CreateAclsRequest(creations=list(entries)), 3)
        response = self.admin.receive()
        assert [each.error_code for each in response.results] == [0] * len(entries), response

    def denials(self) -> int:
        """How many the broker goes by, which in Kafka is a moment behind its controller."""
        asked: Any = matching(permission_type=AclPermissionType.DENY)
        self.admin.send(DescribeAclsRequest(**attrs.asdict(asked)), 3)
        return sum(len(each.acls) for each in self.admin.receive().resources)

    def errors(self, api: ServedApi, denied: Collection[Right]) -> set[ErrorCode]:
        topic = CreatableTopic(name=topic_name(0), num_partitions=1, replication_factor=1, assignments=[], configs=[])
        self.admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        self.admin.receive()
        if denied:
            self.create([denial(right) for right in denied])
        eventually(lambda: self.denials() == len(denied), 10, "the entries")
        client = Connection(self.port, source=CLIENT)
        client.send_bytes(api.api_key, version_of(api), body_of(api))
        errors = authorization_errors(api, client.receive_bytes())
        client.close()
        self.admin.send(DeleteAclsRequest(filters=[matching(permission_type=AclPermissionType.DENY)]), 3)
        self.admin.receive()
        eventually(lambda: self.denials() == 0, 10, "no entries")
        return errors


def granted(type_: ResourceType, host: str) -> AclCreation:
    return about_all(type_, host=host, operation=AclOperation.ALL)


def denial(right: Right) -> AclCreation:
    denied = AclPermissionType.DENY
    return about_all(right.resource_type, host=CLIENT, operation=right.operation, permission=denied)


def about_all(type_: ResourceType, **fields: Any) -> AclCreation:
    """An entry about all resources of a type."""
    name = CLUSTER_NAME if type_ is ResourceType.CLUSTER else "*"
    return entry(name, type_=type_, principal="User:ANONYMOUS", **fields)


def cases() -> Iterator[tuple[ServedApi, frozenset[Right], set[ErrorCode]]]:
    """All that clients may ask of a broker, and lack."""
    for api in served_apis().values():
        if not api.between_brokers and api.api_key not in LEFT_OUT:
            for denied, expected in lacks(api):
                if denied:
                    yield api, denied, expected


def differences(port: int) -> tuple[Errors, Errors]:
    """What the broker says otherwise than expected, and what was expected there."""
    comparison = Comparison(port)
    answered, expected = Errors(), Errors()
    for api, denied, codes in cases():
        if (said := comparison.errors(api, denied)) != codes:
            what = f"{api.api_key.name} without {', '.join(map(str, denied))}"
            answered[what], expected[what] = said, codes
    return answered, expected


@pytest.mark.soak
def test_a_kafka_answers_clients_without_a_right_as_we_do(tmp_path: Path) -> None:
    """Soak: a Kafka, and a hundred requests behind as many changes of its entries."""
    with KafkaProcess(tmp_path, SETTINGS) as kafka:
        answered, expected = differences(kafka.port)
    assert answered.pop(STRICTER) == set()
    assert expected.pop(STRICTER) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert answered == expected


@pytest.mark.soak
def test_so_does_a_broker_of_ours_by_addresses_and_entries(tmp_path: Path) -> None:
    """Soak: as the other one."""
    with BrokerProcess(tmp_path, SETTINGS, has_admin=False) as broker:
        answered, expected = differences(broker.port)
    assert answered == expected
