"""What a handler has beside the message."""

from __future__ import annotations

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.headers import RequestHeader
from tests.handlers.handler_client import CONNECTION
from trio_broker.handlers.support.context import Context
from trio_broker.network.request_channel import QueuedRequest
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal


@pytest.mark.parametrize(("principal", "noted"), [(KafkaPrincipal("User", "alice"), "User:alice"), (ANONYMOUS, "")])
def test_a_change_is_noted_with_who_has_logged_in(principal, noted):
    header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "admin")
    context = Context(QueuedRequest(header, memoryview(b""), CONNECTION, principal=principal), services=None)  # type: ignore[arg-type]
    assert (context.change_origin.client, context.change_origin.principal) == ("admin", noted)
