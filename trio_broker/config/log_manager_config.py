"""The settings of the background work on logs: intervals of retention, flushing and checkpoints, and the LogCleaner.

Source: Kafka's ServerLogConfigs, CleanerConfig and ReplicationConfigs.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import DOUBLE_MAX, LONG_MAX, ConfigType, UpdateMode, key, keys_of
from trio_broker.config.validators import POOL_SIZE, at_least, between

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
LONG = ConfigType.LONG

MIN_DEDUPE_BUFFER_BYTES = 1 << 20
"""Kafka's minimum for each thread. At 24 bytes for a key and a load factor of 0.9 it has room for 39,000 keys."""


@attrs.frozen(kw_only=True)
class LogManagerConfig:
    """The intervals of LogMaintenance, in milliseconds, and the resources of LogCleaner and LogScrubber."""

    num_recovery_threads_per_data_dir: int = key(
        2,
        "How many logs of each data directory are opened at a time at a start; a change counts for the next start.",
        update_mode=CLUSTER_WIDE, validator=POOL_SIZE, thread_pool=True,
        acts_on_rates=False,
    )  # fmt: skip
    log_retention_check_interval_ms: int = key(
        300_000, "How often old segments are looked for.", type=LONG, validator=at_least(1)
    )
    log_initial_task_delay_ms: int = key(
        30_000,
        "How long after the start the log's background tasks run for the first time.",
        type=LONG,
        validator=at_least(0),
    )
    log_cleaner_enable: bool = key(
        True,
        "Whether topics whose cleanup.policy says so are compacted; __consumer_offsets grows without that.",
    )
    log_cleaner_threads: int = key(
        1,
        "How many partitions are compacted at the same time.",
        update_mode=CLUSTER_WIDE, validator=POOL_SIZE, thread_pool=True,
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: int = key(
        128 * 1024 * 1024,
        "Memory for the newest offsets of keys, 24 bytes for each, over all threads of log.cleaner.threads.",
        type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(MIN_DEDUPE_BUFFER_BYTES),
    )  # fmt: skip
    log_cleaner_io_buffer_load_factor: float = key(
        0.9,
        "How full log.cleaner.dedupe.buffer.size may get: fuller takes more keys and more time for each.",
        update_mode=CLUSTER_WIDE, validator=between(0.1, 0.95),
    )  # fmt: skip
    log_cleaner_io_buffer_size: int = key(
        512 * 1024,
        "Half of it is read, and half written, at a time, over all threads of log.cleaner.threads; a page at least.",
        update_mode=CLUSTER_WIDE, validator=at_least(0),
    )  # fmt: skip
    log_cleaner_io_max_bytes_per_second: float = key(
        DOUBLE_MAX,
        "Compaction reads and writes no more than this, on average and all together.",
        update_mode=CLUSTER_WIDE, validator=at_least(1024.0),
    )  # fmt: skip
    log_cleaner_backoff_ms: int = key(
        15_000,
        "How long after nothing was found to compact it is looked for again; 0 is as 1.",
        type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(0),
    )  # fmt: skip
    log_scrubber_enable: bool = key(
        True,
        "Whether sealed segments are read again and again to find damage before a consumer does.",
    )
    log_scrubber_io_max_bytes_per_second: float = key(
        1024.0 * 1024,
        "The scrubber reads no more than this: 90 GB a day, and a few percent of a processor where batches are tiny.",
        update_mode=CLUSTER_WIDE, validator=at_least(1024.0),
    )  # fmt: skip
    log_scrubber_interval_ms: int = key(
        604_800_000,
        "How long after the beginning of a pass over all logs the scrubber begins the next.",
        type=LONG, update_mode=CLUSTER_WIDE, validator=at_least(1),
        acts_on_rates=False,
    )  # fmt: skip
    log_flush_scheduler_interval_ms: int = key(
        LONG_MAX, "How often the flusher looks for partitions that are due by log.flush.interval.ms.", type=LONG
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        60_000, "How often the recovery points and log start offsets are written down.", validator=at_least(0)
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        5_000, "How often the high watermarks are written down.", type=LONG, validator=at_least(1)
    )


[LOG_FLUSH_SCHEDULER_INTERVAL_MS] = [
    each for each in keys_of(LogManagerConfig) if each.name == "log.flush.scheduler.interval.ms"
]
"""The key whose value counts if ``log.flush.interval.ms`` is not set, as in Kafka."""
