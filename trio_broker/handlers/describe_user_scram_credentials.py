"""DescribeUserScramCredentials: no user can log in by SCRAM, so none has credentials.

Source: Kafka's ScramImage.describe.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns, count_in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, for_cluster


def error_response(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=str(error), results=[])


@handles(DescribeUserScramCredentialsRequest, error_response=error_response, requires=[for_cluster(DESCRIBE_CLUSTER)])
async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    """List the users with SCRAM credentials: none, and each that is asked about by name is not found."""
    # One result for each name, also for one that is named twice: that is its error (ScramImage.describe).
    counts = await run_steps(count_in_turns(user.name for user in request.users or ()))
    results = [described_user(user, count) async for user, count in InTurns(counts.items())]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def described_user(user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        reason = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    else:
        code = ErrorCode.RESOURCE_NOT_FOUND
        reason = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=reason, credential_infos=[])
