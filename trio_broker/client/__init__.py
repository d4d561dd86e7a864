"""A small blocking Kafka client, used by the commands and by Spark.

Plain sockets and ``kafka_wire``, no event loop and nothing of the broker, so that a command starts fast and speaks to
any Kafka. It reads and changes topics, configs, groups and offsets; it neither produces nor consumes.

Start reading at ``kafka_client``; ``connection`` is one socket, and every other module asks for one subject.
"""
