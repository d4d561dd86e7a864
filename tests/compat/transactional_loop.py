"""A loop of confluent-kafka that reads, processes and writes in transactions, in a process of its own.

Arguments: the servers, the topic read, the topic written, the group, the transactional id. It prints ``committed N``
after each transaction, N being how many records it has moved, and the name of the error that ends it.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer

SECONDS = 30
SESSION_MS = 6000
"""The shortest that the broker's default lets in."""

TRANSACTION_MS = 8000
"""How long the offsets of a loop that was paused inside a transaction keep its successor from reading."""

RECORDS_PER_TRANSACTION = 5


def run(servers: str, source: str, target: str, group: str, transactional_id: str) -> None:
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "session.timeout.ms": SESSION_MS, "isolation.level": "read_committed",
    })  # fmt: skip
    producer = Producer({
        "bootstrap.servers": servers, "transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_MS,
    })  # fmt: skip
    producer.init_transactions(SECONDS)
    consumer.subscribe([source])
    moved = 0
    while True:
        messages = consumer.consume(RECORDS_PER_TRANSACTION, 1.0)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None, message.error()
            producer.produce(target, message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)
        moved += len(messages)
        print("committed", moved, flush=True)


if __name__ == "__main__":
    try:
        run(*sys.argv[1:])
    except KafkaException as refused:
        print("refused", refused.args[0].name(), flush=True)
