"""Start brokers inside a running Python, one after the other, and print what each start took, as JSON.

A process of its own, so that its first broker finds nothing compiled or cached by the benchmark around it. Times are
milliseconds from the call to the first Metadata answer; the first entry is the import of what is needed.

    python -m bench.in_process 5
"""

from __future__ import annotations

import json
import sys
import time

from bench.wire import METADATA_VERSION, connect, metadata
from kafka_wire import codec
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse


def start_milliseconds(count: int) -> list[float]:
    """The import, then ``count`` starts."""
    # The client's half of the codec is not the broker's time; the broker compiles the other half.
    codec.writer(MetadataRequest, METADATA_VERSION)
    codec.reader(MetadataResponse, METADATA_VERSION)
    began = time.perf_counter()
    from trio_broker.testing.broker_thread import broker_in_thread

    times = [time.perf_counter() - began]
    for _ in range(count):
        began = time.perf_counter()
        with broker_in_thread() as broker, connect(int(broker.bootstrap_servers.rpartition(":")[2])) as sock:
            metadata(sock)
            times.append(time.perf_counter() - began)
    return [seconds * 1e3 for seconds in times]


if __name__ == "__main__":
    print(json.dumps(start_milliseconds(int(sys.argv[1]))))
