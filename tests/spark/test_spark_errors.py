"""What is wrong with a job survives its way from a worker to the driver."""

from __future__ import annotations

import pickle

import pytest

from trio_broker.spark.errors import CorruptData, DataLoss, OptionError, SourceUnavailable, SparkJobError
from trio_broker.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 3)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OptionError("startingOffsets", "not JSON"), "option 'startingOffsets': not JSON"),
        (DataLoss(ORDERS, 7, "deleted"), "orders-3 at offset 7: deleted"),
        (CorruptData(ORDERS, 7, "CRC"), "orders-3 at offset 7: CRC"),
        (SourceUnavailable("nobody answers"), "nobody answers"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_comes_out_of_a_pickle_as_it_went_in(error: SparkJobError, text: str) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error) == text
