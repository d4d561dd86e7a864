"""What a partition is to its clients: which records are visible, which are safe, and who waits for which.

``partition`` wraps one storage log with leader epoch, high watermark and last stable offset; ``purgatory`` holds the
requests that wait; ``flusher`` makes appended records durable, many requests with one sync; ``fetching`` reads many
partitions within one byte limit; ``replica_manager`` owns all partitions; ``upkeep`` does what comes round by the
clock. Storage below is synchronous: this floor decides what runs in a worker thread.
"""
