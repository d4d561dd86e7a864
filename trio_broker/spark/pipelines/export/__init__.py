"""``export``: topics to a table, all columns unchanged."""
