"""ListTransactions: the transactions that this broker coordinates, by state, producer, duration and id.

Source: Kafka's TransactionStateManager.listTransactionStates; KIP-664, KIP-994, KIP-1152.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from kafka_wire.stored.transactions import STATE_NAMES
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.coordinator.consumer.topic_patterns import InvalidPattern, compiled_pattern
from trio_broker.coordinator.transactions.transaction_coordinator import KnownTransaction
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_TRANSACTIONAL_ID, InHandler


def error_response(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code, unknown_state_filters=[], transaction_states=[])


@attrs.frozen
class TransactionFilter:
    """What a request asks for; an empty set asks for all, and so does a negative duration."""

    states: frozenset[str]
    producer_ids: frozenset[int]
    longer_than_ms: int
    matches_id: Callable[[str], object]
    now_ms: int

    def passes(self, known: KnownTransaction) -> bool:
        metadata = known.metadata
        return (
            (not self.states or STATE_NAMES[metadata.status] in self.states)
            and (not self.producer_ids or metadata.producer_id in self.producer_ids)
            and (self.longer_than_ms < 0 or self.now_ms - metadata.start_ms > self.longer_than_ms)
            and bool(self.matches_id(known.transactional_id))
        )


@handles(
    ListTransactionsRequest,
    error_response=error_response,
    requires=[InHandler([DESCRIBE_TRANSACTIONAL_ID], "left out")],
)
async def list_transactions(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    """List the transactions that pass all filters."""
    names = set(STATE_NAMES.values())
    unknown = [name async for name in InTurns(dict.fromkeys(request.state_filters)) if name not in names]
    wanted = TransactionFilter(
        states=frozenset(request.state_filters),
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
        matches_id=id_matcher(request.transactional_id_pattern),
        now_ms=context.services.clock.now_ms(),
    )
    transactions = context.services.transactions.transactions()
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=known.transactional_id,
                producer_id=known.metadata.producer_id,
                transaction_state=STATE_NAMES[known.metadata.status],
            )
            async for known in InTurns(transactions)
            if wanted.passes(known) and context.may(DESCRIBE_TRANSACTIONAL_ID, known.transactional_id, is_audited=False)
        ],
    )


def id_matcher(pattern: str | None) -> Callable[[str], object]:
    """Whether a transactional id matches ``pattern`` as a whole; without one, each does.

    Raises:
        KafkaError: ``INVALID_REGULAR_EXPRESSION``.
    """
    if not pattern:
        return bool
    try:
        matcher: Callable[[str], object] = compiled_pattern(pattern).fullmatch
    except InvalidPattern as error:
        raise KafkaError(f"{pattern!r:.200}: {error}", code=ErrorCode.INVALID_REGULAR_EXPRESSION) from error
    return matcher
