"""Everything that can be set: one table of keys, read by whatever shows, checks or changes a setting.

``keys`` and ``topic_keys`` are the table; ``properties`` reads Kafka's file format; ``broker_config`` lays file,
environment, command line and dynamic changes over each other in Kafka's order; ``topic_config`` gives one topic its
effective values; ``listeners`` reads the listener settings; ``documentation`` renders the table as ``docs/config.md``.
"""
