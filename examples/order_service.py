"""An asyncio service on aiokafka: it consumes orders, and produces the running total of each customer.

    python examples/order_service.py [host:port]

The totals topic is compacted, so the newest total of each customer is kept. To be complete in one file the program also
sends the orders, and ends when it has seen all of them; a service would run until it is cancelled.

Offsets are committed after the totals have been acknowledged: an order is processed at least once.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError

ORDERS = [("ada", 30), ("ben", 12), ("ada", 5), ("cleo", 99), ("ben", 8)]


async def create_topics(server: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    try:
        totals = NewTopic("totals", num_partitions=1, replication_factor=1, topic_configs={"cleanup.policy": "compact"})
        await admin.create_topics([NewTopic("orders", num_partitions=3, replication_factor=1), totals])
    except TopicAlreadyExistsError:
        pass
    finally:
        await admin.close()


async def send_orders(server: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=server) as producer:
        for customer, amount in ORDERS:
            order = json.dumps({"customer": customer, "amount": amount}).encode()
            await producer.send_and_wait("orders", order, key=customer.encode())


async def serve(server: str, orders: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    consumer = AIOKafkaConsumer(
        "orders",
        group_id="order-service",
        bootstrap_servers=server,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer, AIOKafkaProducer(bootstrap_servers=server, enable_idempotence=True) as producer:
        while orders > 0:
            batches = await consumer.getmany(timeout_ms=1000)
            for record in (record for records in batches.values() for record in records):
                order = json.loads(record.value)
                totals[order["customer"]] += order["amount"]
                total = json.dumps(totals[order["customer"]]).encode()
                await producer.send_and_wait("totals", total, key=record.key)
                orders -= 1
            if batches:
                await consumer.commit()
    return totals


async def main(server: str) -> None:
    await create_topics(server)
    await send_orders(server)
    for customer, total in sorted((await serve(server, len(ORDERS))).items()):
        print(f"{customer}: {total}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
