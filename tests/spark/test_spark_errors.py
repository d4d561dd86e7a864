"""What is wrong with a job survives its way from a worker to the driver."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace

import attrs
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark import sink
from trio_broker.spark.chunk import Chunk, Decoding
from trio_broker.spark.errors import CorruptData, DataLoss, OptionError, SourceUnavailable, SparkJobError
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.task_partition import TaskPartition, read_partition
from trio_broker.spark.tasks import ReadTask

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


@attrs.frozen
class FailingTransport:
    """A transport whose first chunk raises ``error``."""

    error: Exception

    def chunks(self, offsets: OffsetRange) -> Generator[Chunk, None, None]:
        raise self.error
        yield


def read_and_fail(error: Exception) -> None:
    task = ReadTask(OffsetRange(ORDERS, 0, 9), FailingTransport(error), Decoding(("value",)))
    list(read_partition(TaskPartition(task)))


def write_and_fail(error: Exception) -> None:
    options = {"topic": "orders", "kafka.bootstrap.servers": "127.0.0.1:9"}
    writer = sink.batch_writer(options, StructType([StructField("value", StringType())]), overwrite=False)

    def rows() -> Iterator[object]:
        raise error
        yield

    writer.write(rows())


@pytest.mark.parametrize("fail", [read_and_fail, write_and_fail])
@pytest.mark.parametrize(("error", "is_shown"), [(CorruptData(ORDERS, 7, "CRC"), False), (RuntimeError("a bug"), True)])
def test_an_error_of_a_job_comes_out_of_a_task_without_the_frames_that_it_went_through(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[Exception], None], error: Exception, is_shown: bool
) -> None:
    monkeypatch.setattr(sink, "_task_context", lambda: SimpleNamespace(partitionId=lambda: 0))
    with pytest.raises(type(error)) as raised:
        fail(error)
    raising = traceback.extract_tb(raised.tb)[-1].name
    assert (raising in ("chunks", "rows")) is is_shown
