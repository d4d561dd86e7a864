"""ApiVersions, the first request of every client."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, decode_whole
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.cases import each
from trio_broker.cluster.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from trio_broker.handlers.api_versions import encoded_answer
from trio_broker.handlers.support.registry import advertised_apis
from trio_broker.network.errors import CloseConnection

VERSIONS = range(6)
FLEXIBLE_VERSIONS = range(3, 6)
CORRELATION_ID_BYTES = 4


def request(name: str = "librdkafka", software_version: str = "2.11.1") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=software_version)


@each("version", VERSIONS)
async def test_every_served_api_is_reported_with_its_range(wire, version):
    response = await wire.ask(request(), version)
    reported = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert reported == {api.api_key: tuple(api.advertised) for api in advertised_apis(to_brokers=False)}
    assert response.error_code == ErrorCode.NONE


@each("unknown_version", [6, 7, 32767])
async def test_a_version_above_ours_is_answered_in_version_0_with_our_own_range(wire, unknown_version):
    answer = await wire.send(ApiKey.API_VERSIONS, unknown_version, b"a body that nobody parses")
    response, end = decode(ApiVersionsResponse, 0, answer, CORRELATION_ID_BYTES)
    assert end == len(answer)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    [own] = response.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (ApiKey.API_VERSIONS, 0, 5)


async def test_a_version_below_zero_ends_the_connection(wire):
    with pytest.raises(CloseConnection):
        await wire.send(ApiKey.API_VERSIONS, -1, b"")


@each("version", FLEXIBLE_VERSIONS)
async def test_the_response_header_has_no_tags_even_where_the_body_is_flexible(wire, version):
    whom = b"\x00\xff\xff\xff\xff" if version >= 5 else b""
    answer = await wire.send(ApiKey.API_VERSIONS, version, b"\x02x\x021" + whom + b"\x00")
    response, end = decode(ApiVersionsResponse, version, answer, CORRELATION_ID_BYTES)
    assert end == len(answer)
    assert response.error_code == ErrorCode.NONE


@each("version", VERSIONS)
async def test_produce_is_advertised_from_version_0(wire, version):
    response = await wire.ask(request(), version)
    [produce] = [entry for entry in response.api_keys if entry.api_key == ApiKey.PRODUCE]
    assert (produce.min_version, produce.max_version) == (0, 13)


@each("version", VERSIONS)
async def test_the_unstable_top_of_init_producer_id_is_not_advertised(wire, version):
    response = await wire.ask(request(), version)
    [init_producer_id] = [entry for entry in response.api_keys if entry.api_key == ApiKey.INIT_PRODUCER_ID]
    assert init_producer_id.max_version < 6


@each(
    "version,supported",
    [
        (3, [("metadata.version", 25, 25)]),
        (
            4,
            [
                ("group.version", 0, 1),
                ("transaction.version", 0, 2),
                ("metadata.version", 25, 25),
                ("kraft.version", 0, 0),
            ],
        ),
    ],
)
async def test_a_supported_feature_from_level_0_is_left_out_below_version_4(wire, version, supported):
    response = await wire.ask(request(), version)
    reported = [(feature.name, feature.min_version, feature.max_version) for feature in response.supported_features]
    assert reported == supported


@pytest.mark.parametrize("version", FLEXIBLE_VERSIONS)
async def test_finalised_features_come_with_an_epoch_that_grows(wire, version):
    response = await wire.ask(request(), version)
    reported = [(each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features]
    assert reported == [("metadata.version", 25, 25), ("group.version", 1, 1), ("transaction.version", 2, 2)]
    assert response.finalized_features_epoch >= 0
    await wire.create_topic("t")
    assert (await wire.ask(request(), version)).finalized_features_epoch > response.finalized_features_epoch


async def meaning(wire: Any, cluster_id: str | None, node_id: int = -1) -> ApiVersionsResponse:
    meant = request()
    meant.cluster_id, meant.node_id = cluster_id, node_id
    response: ApiVersionsResponse = await wire.ask(meant, 5)
    return response


async def test_a_client_that_means_this_broker_is_served_however_much_of_it_the_client_knows(wire):
    node = wire.services.node
    for whom in ((None, -1), (None, 99), (node.cluster_id, -1), (node.cluster_id, node.node_id)):
        assert (await meaning(wire, *whom)).error_code == ErrorCode.NONE, whom


async def test_a_client_that_means_another_broker_starts_from_its_bootstrap_addresses_again(wire):
    """A proxy or a port map that has led it here would otherwise let it write to the wrong broker."""
    node = wire.services.node
    for whom in (("another", node.node_id), ("another", -1), (node.cluster_id, node.node_id + 1), ("", -1)):
        response = await meaning(wire, *whom)
        assert (response.error_code, response.api_keys) == (ErrorCode.REBOOTSTRAP_REQUIRED, []), whom


@each("version", FLEXIBLE_VERSIONS)
@each(
    "name,software_version",
    [
        ("", ""),
        ("", "1.0"),
        ("client", ""),
        ("-client", "1.0"),
        ("client", "1.0-"),
        ("two words", "1"),
        ("a\nb", "1"),
        ("ä", "1"),
        ("a" * 301, "1"),
    ],
)
async def test_a_software_name_that_is_none_is_an_invalid_request(wire, version, name, software_version):
    response = await wire.ask(request(name, software_version), version)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.api_keys == []


@each("version", range(3))
async def test_versions_that_carry_no_software_name_are_not_asked_for_one(wire, version):
    assert (await wire.ask(ApiVersionsRequest(), version)).error_code == ErrorCode.NONE


@each("version", FLEXIBLE_VERSIONS)
@each("name", ["apache-kafka-java", "kafka-python", "c", "Sarama", "a.b-c.d"])
async def test_the_software_is_remembered_with_its_connection(wire, version, name):
    await wire.ask(request(name, "4.3.1"), version)
    assert (wire.request.client.software.name, wire.request.client.software.version) == (name, "4.3.1")


def test_a_cluster_with_replicas_shows_what_only_several_brokers_have():
    name = ELIGIBLE_LEADER_REPLICAS_VERSION
    response = decode_whole(ApiVersionsResponse, 4, encoded_answer(4, 5, ((name, 1), ("group.version", 1))), 0)
    assert [each.max_version for each in response.supported_features if each.name == name] == [1]
    assert [each.max_version_level for each in response.finalized_features if each.name == name] == [1]
    alone = decode_whole(ApiVersionsResponse, 4, encoded_answer(4, 5, (("group.version", 1),)), 0)
    assert name not in {each.name for each in alone.supported_features}
    assert name not in {each.name for each in alone.finalized_features}
