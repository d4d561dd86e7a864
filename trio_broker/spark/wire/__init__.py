"""Offsets and records over Kafka's protocol, from any Kafka: ``cluster`` for the driver, ``transport`` for tasks."""
