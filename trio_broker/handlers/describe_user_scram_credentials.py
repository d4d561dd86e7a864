"""DescribeUserScramCredentials: which users have a password for SCRAM, and how it is salted.

Source: Kafka's ScramImage.describe.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from trio_broker.cluster.scram_control import credential_records
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
    """List the users with SCRAM credentials, or those asked about by name."""
    credentials: dict[str, list[CredentialInfo]] = {}
    async for (user, mechanism), record in InTurns(credential_records(context.services.metadata_cache.image).items()):
        info = CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        credentials.setdefault(user, []).append(info)
    # One result for each name, also for one that is named twice: that is its error (ScramImage.describe).
    asked = (user.name for user in request.users) if request.users else iter(credentials)
    counts = await run_steps(count_in_turns(asked))
    results = [described_user(user, count, credentials.get(user, [])) async for user, count in InTurns(counts.items())]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def described_user(user: str, count: int, infos: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    if count == 1 and infos:
        return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        error = KafkaError(text, code=ErrorCode.DUPLICATE_RESOURCE)
    else:
        text = f"Attempt to describe a user credential that does not exist: {user}"
        error = KafkaError(text, code=ErrorCode.RESOURCE_NOT_FOUND)
    return DescribeUserScramCredentialsResult(
        user=user, error_code=error.code, error_message=str(error), credential_infos=[]
    )
