"""What a partition is to its clients: which records are visible, which are safe, and who waits for which.

``partition`` wraps one storage log with leader epoch, high watermark and last stable offset; ``delayed_operations``
holds the requests that wait; ``flusher`` makes appended records durable, many requests with one sync;
``fetch_operation`` reads many partitions within one byte limit, for ``fetch_sessions`` or without one;
``leader_appends`` appends batches and the ends of transactions, ``replica_fetcher`` what another broker leads, of which
``remote_replicas`` says whether it is in sync; ``replica_manager`` owns all partitions, by topic;
``log_maintenance`` runs retention, checkpoints and expiry at their intervals, ``log_cleaner`` compaction and
``log_scrubber`` the search for damage. Storage below is synchronous: this floor decides what runs in a worker thread,
and what a failed disk costs.
"""
