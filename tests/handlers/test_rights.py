"""What each API requires: every declared right is asked for, and no other, and its lack is answered as declared."""

from __future__ import annotations

import pytest
import trio

from bench.largest_requests import topic_name
from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from tests.handlers.missing_rights import AllBut, authorization_errors, body_of, client_of, lacks, version_of
from tests.handlers.wire_client import WireClient
from trio_broker.handlers.support.registry import ServedApi, served_apis
from trio_broker.handlers.support.rights import DESCRIBE_TOPIC, NoRight, Right


async def answer_codes(wire: WireClient, authorizer: AllBut, api: ServedApi) -> set[ErrorCode]:
    """The authorization errors in the answer to a request of ``api``."""
    client = client_of(wire, authorizer, between_brokers=api.between_brokers)
    answer = None
    # Some would wait for others, long after the rights were asked for.
    with trio.move_on_after(0.2):
        answer = await client.send(api.api_key, version_of(api), body_of(api))
    return set() if answer is None else authorization_errors(api, answer)


UNCOORDINATED = ApiKey.OFFSET_FETCH, frozenset({DESCRIBE_TOPIC})
"""No group has a coordinator here, which is the error of all its partitions."""

APIS = [pytest.param(api, id=api.api_key.name) for api in served_apis().values()]


@pytest.mark.parametrize("api", APIS)
async def test_the_lack_of_a_right_is_answered_as_declared(wire, api: ServedApi):
    await wire.create_topic(topic_name(0))
    assert api.requires
    asked: set[Right] = set()
    for denied, expected in lacks(api):
        authorizer = AllBut(denied)
        if (api.api_key, denied) == UNCOORDINATED:
            expected = set()
        assert await answer_codes(wire, authorizer, api) == expected, denied
        asked |= authorizer.asked
    assert asked <= api.rights
    assert not (asked and isinstance(api.requires[0], NoRight))
