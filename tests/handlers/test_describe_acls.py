"""DescribeAcls."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_acls import DescribeAclsRequest

ANY = 1


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_the_answer_says_that_there_is_no_authorizer(wire, version):
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = await wire.ask(request, version)
    assert (response.error_code, response.error_message, response.resources) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
        [],
    )
