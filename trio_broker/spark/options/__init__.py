"""What a job may be told: the options of reading and writing, and of Kafka's clients behind ``kafka.``.

Options are declared as data (``read_option_table``, ``kafka_settings``, ``write_options``), so that parsing, hints at
misspelt names and docs/spark-options.md come from one place. Nothing here asks anybody for anything.
"""
