"""``restore``: Parquet files, written to a topic in the order of their offsets."""
