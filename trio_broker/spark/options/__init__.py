"""The options of reading and writing, and those of Kafka's clients behind ``kafka.``.

Options are declared as data (``read_option_table``, ``kafka_options``, ``write_options``): parsing, settings, hints for
misspelt names and docs/spark-options.md come from one place. Nothing here does I/O.
"""
