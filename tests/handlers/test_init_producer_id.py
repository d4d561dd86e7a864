"""InitProducerId: identities for idempotent producers."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from trio_broker.handlers.init_producer_id import error_response, init_producer_id


def request(transactional_id=None, timeout_ms=60_000, **fields):
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **fields)


@pytest.mark.parametrize("version", range(6))
async def test_every_version_gets_an_id(client, version):
    response = await client.ask(init_producer_id, request(), version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1000, 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 5000, 60_000, 2**31 - 1])
@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, -1), (0, 0), (1000, 5)])
async def test_without_a_transactional_id_every_request_gets_a_new_id_at_epoch_0(
    client, timeout_ms, producer_id, producer_epoch
):
    asked = request(timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=producer_epoch)
    answers = [await client.ask(init_producer_id, asked, 5) for _ in range(2)]
    assert [answer.producer_id for answer in answers] == [1000, 1001]
    assert [answer.producer_epoch for answer in answers] == [0, 0]


def test_a_refusal_has_neither_id_nor_epoch():
    response = error_response(request("mine"), KafkaError("no", code=ErrorCode.INVALID_REQUEST))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)
