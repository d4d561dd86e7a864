"""The metadata of the cluster, from its log to the parts that follow it.

A ``metadata_store`` has the records, in ``local_metadata_store`` those of a ``metadata_log``, with
``metadata_snapshot``; ``metadata_image`` is what they say, and a ``metadata_delta`` makes the next image. Decisions are
pure functions of the image and a request (``replication_control``, ``configuration_control``, ``cluster_control``,
``broker_liveness``, ``alter_partition``, ``leader_elections``, ``partition_reassignments``, ``producer_ids``); they
return records, and what changes a partition is made by ``partition_change_builder`` alone. ``controller`` has them
appended by ``write_operations``; ``periodic_tasks`` is what it does by itself. A ``metadata_loader`` reads them and
hands them to ``metadata_publisher``, which notifies those that act on them: the partitions
(``broker_metadata_publisher``), the settings (``dynamic_config_publisher``), the coordinators.

Beside them stands what a start asks of stored metadata (``stored_metadata``, ``lost_metadata``, ``declared_topics``),
what takes it from Kafka and back (``kafka_import``, ``kafka_export``), what a failed directory means for it, and
settings that are in no record: those on trial (``config_trials``) and the levels of loggers.
"""
