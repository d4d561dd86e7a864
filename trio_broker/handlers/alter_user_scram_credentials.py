"""AlterUserScramCredentials: give users passwords for SCRAM, or take them away.

Source: Kafka's ControllerApis.handleAlterUserScramCredentials.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from trio_broker.cluster.scram_control import ScramChange, ScramDeletion, ScramUpsertion
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, for_cluster


def error_response(request: AlterUserScramCredentialsRequest, error: KafkaError) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    return AlterUserScramCredentialsResponse(results=[result_of(user, error) for user in users])


@handles(
    AlterUserScramCredentialsRequest,
    error_response=error_response,
    requires=[for_cluster(ALTER_CLUSTER)],
    by_controller=True,
)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: Context
) -> AlterUserScramCredentialsResponse:
    """Change the password of each user."""
    context.release_for_disk()
    changes: list[ScramChange] = [ScramDeletion(each.name, each.mechanism) async for each in InTurns(request.deletions)]
    async for each in InTurns(request.upsertions):
        salt, salted_password = bytes(each.salt), bytes(each.salted_password)
        changes.append(ScramUpsertion(each.name, each.mechanism, each.iterations, salt, salted_password))
    outcomes = await context.services.controller.alter_scram_credentials(changes)
    results = [result_of(user, outcome) async for user, outcome in InTurns(outcomes.items())]
    return AlterUserScramCredentialsResponse(results=results)


def result_of(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_code=ErrorCode.NONE, error_message=None)
    return AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=str(error))
