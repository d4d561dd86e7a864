"""DescribeClientQuotas."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, SPECIFIED = range(3)


def request(*components, strict=False):
    return DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components],
        strict=strict,
    )


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "components",
    [
        (),
        (("user", SPECIFIED, None),),
        (("user", EXACT, "a"), ("client-id", DEFAULT, None)),
        (("ip", EXACT, "10.0.0.1"),),
    ],
)
async def test_nobody_has_a_quota(wire, components, version):
    response = await wire.ask(request(*components), version)
    assert (response.error_code, response.error_message, response.entries) == (ErrorCode.NONE, None, [])


@pytest.mark.parametrize(
    ("components", "reason"),
    [
        ([("", SPECIFIED, None)], "Invalid empty entity type."),
        ([("user", EXACT, None)], "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "a")], "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", SPECIFIED, "a")], "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 7, None)], "Unknown match type 7"),
        (
            [("user", SPECIFIED, None), ("user", EXACT, "a")],
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("user", SPECIFIED, None), ("ip", DEFAULT, None)],
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component.",
        ),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused_in_kafkas_words(wire, components, reason):
    response = await wire.ask(request(*components), 1)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, reason)
    assert response.entries is None


async def test_a_type_of_entity_that_kafka_does_not_have_is_an_unsupported_version(wire):
    response = await wire.ask(request(("tenant", SPECIFIED, None)), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.error_message == "Unsupported entity type tenant"
