"""``stats``: a report on the batches in topics, from their headers."""
