"""CreateAcls."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_acls import AclCreation, CreateAclsRequest

ENTRY = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_entry_is_refused(wire, version):
    response = await wire.ask(CreateAclsRequest(creations=[ENTRY, ENTRY]), version)
    reported = [(item.error_code, item.error_message) for item in response.results]
    assert reported == [(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")] * 2
