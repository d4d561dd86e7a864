"""DeleteAcls."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

ANY = 1
FILTER = DeleteAclsFilter(
    resource_type_filter=ANY,
    resource_name_filter=None,
    principal_filter=None,
    host_filter=None,
    operation=ANY,
    permission_type=ANY,
)


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_filter_is_refused(wire, version):
    response = await wire.ask(DeleteAclsRequest(filters=[FILTER, FILTER]), version)
    reported = [(item.error_code, item.error_message, item.matching_acls) for item in response.filter_results]
    assert reported == [(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.", [])] * 2
