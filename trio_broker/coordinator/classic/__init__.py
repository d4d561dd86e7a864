"""Classic groups: members, joining, rebalances, and their records. Kafka's ClassicGroup."""
