"""What any coordinator needs: shards of a state machine over the partitions of an internal topic.

``machine`` says what a machine is, ``shard`` runs one, ``coordinator_runtime`` loads and unloads all of a topic.
Source: Kafka's CoordinatorRuntime.
"""
