"""A small blocking Kafka client, used by the commands and by Spark.

Plain sockets and ``kafka_wire``, no event loop and nothing of the broker, so that a command starts fast and speaks to
any Kafka. It reads and changes topics, configs, groups and offsets; ``producer`` writes records and ``fetcher`` reads
them, without joining a group.

``kafka_client`` is the place to start reading: it finds the broker for a request. ``connection`` is one socket. Each
other module sends the requests about one subject.
"""
