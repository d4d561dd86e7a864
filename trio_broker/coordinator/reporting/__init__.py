"""What is shown of groups: snapshots and counters, timelines of rebalances, and lag, now and over time."""
