"""``cluster info``: brokers, features, and the versions of APIs."""

from __future__ import annotations

import json

from kafka_wire.apis import ApiKey
from kafka_wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tests.cli.scripted_commands import run
from tests.client.scripted_client import unused_port
from tests.fakes.scripted_kafka import HOST, Cluster, ScriptedKafka


def featured(epoch: int = 0) -> ApiVersionsResponse:
    """What a broker serves, and that the cluster runs a feature at level 7."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=12),
            ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4),
        ],
        supported_features=[SupportedFeatureKey(name="metadata.version", min_version=1, max_version=9)],
        finalized_features_epoch=epoch,
        finalized_features=[FinalizedFeatureKey(name="metadata.version", max_version_level=7, min_version_level=7)],
    )


def test_the_cluster_is_shown():
    with ScriptedKafka({ApiVersionsRequest: featured()}) as server:
        Cluster([server])
        result = run(server, "cluster", "info")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines() == [
            "cluster: scripted  brokers: 1",
            f"BROKER  ADDRESS{' ' * (len(server.address) - 7)}  RACK  CONTROLLER",
            f"     1  {server.address}     -  yes",
            "",
            "FEATURE           FROM  TO  IN USE",
            "metadata.version     1   9       7",
        ]


def test_the_versions_of_every_api_are_shown_if_asked_for():
    with ScriptedKafka({ApiVersionsRequest: featured()}) as server:
        Cluster([server])
        assert run(server, "cluster", "info", "--apis").stdout.splitlines()[-3:] == [
            "API          KEY  BROKER 1",
            "Metadata       3  0-12",
            "ApiVersions   18  0-4",
        ]


def test_json_has_all_of_it():
    with ScriptedKafka({ApiVersionsRequest: featured(epoch=-1)}) as server:
        Cluster([server])
        assert json.loads(run(server, "cluster", "info", "--json").stdout) == {
            "cluster_id": "scripted",
            "controller": 1,
            "brokers": [
                {
                    "broker": 1,
                    "address": server.address,
                    "rack": None,
                    "controller": True,
                    "features": [
                        # The epoch says that the broker does not know what the cluster runs.
                        {
                            "feature": "metadata.version",
                            "min_version": 1,
                            "max_version": 9,
                            "finalized_version": None,
                        }
                    ],
                    "apis": [
                        {"key": 3, "name": "Metadata", "min_version": 0, "max_version": 12},
                        {"key": 18, "name": "ApiVersions", "min_version": 0, "max_version": 4},
                    ],
                }
            ],
        }


def test_a_broker_that_does_not_answer_is_reported_beside_the_others():
    with ScriptedKafka({ApiVersionsRequest: featured()}) as server:
        port = unused_port()
        Cluster([server], other_nodes={2: (HOST, port)})
        result = run(server, "cluster", "info")
        assert result.exit_code == 1
        assert result.stderr.startswith(f"trio-broker: broker 2: cannot connect to {HOST}:{port}")
        assert [line.split()[0] for line in result.stdout.splitlines()[2:4]] == ["1", "2"]
