"""What ``export`` and ``etl`` have in common: micro-batches of records to tables, each record exactly once."""
