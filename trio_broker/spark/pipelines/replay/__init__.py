"""``replay``: a range of topics, written again to a topic of the same or another cluster."""
