"""Produce five greetings, and consume them as a member of a group that commits its offsets.

    python examples/produce_and_consume.py [host:port]

Run it again: the group goes on where it stopped, so it prints the five new greetings only.
"""

from __future__ import annotations

import sys

from kafka import KafkaConsumer, KafkaProducer

TOPIC, GROUP, COUNT = "greetings", "hosts", 5


def produce(bootstrap_servers: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send(TOPIC, key=b"%d" % number, value=b"hello %d" % number)
        producer.flush()
    print(f"produced {COUNT} records to {TOPIC}")


def consume(bootstrap_servers: str) -> None:
    # Closing commits the offsets and leaves the group. A consumer that only disappears stays a member until its session
    # times out, and the next one waits for it.
    with KafkaConsumer(
        TOPIC, group_id=GROUP, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(COUNT):
            record = next(consumer)
            print(f"{record.topic}-{record.partition} at {record.offset}: {record.value.decode()}")


if __name__ == "__main__":
    server = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    produce(server)
    consume(server)
