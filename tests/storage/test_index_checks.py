"""What the entries of an index may say, beyond what is planted in ``test_directory_check``."""

from __future__ import annotations

import pytest

from trio_broker.storage.index_checks import TransactionIndexCheck
from trio_broker.storage.transaction_index import AbortedTransaction

PRODUCER = 2
MARKER_OFFSET = 27


@pytest.mark.parametrize(("log_start_offset", "is_right"), [(0, False), (14, False), (16, True)])
def test_a_transaction_that_began_before_the_log_start_may_be_indexed_from_there_on(log_start_offset, is_right):
    indexed = AbortedTransaction(PRODUCER, 17, MARKER_OFFSET, MARKER_OFFSET + 1)
    check = TransactionIndexCheck([indexed], log_start_offset)
    whole = AbortedTransaction(PRODUCER, 14, MARKER_OFFSET, MARKER_OFFSET + 1)
    check.note_abort_marker(PRODUCER, MARKER_OFFSET, whole)
    assert (check.problem() is None) == is_right
