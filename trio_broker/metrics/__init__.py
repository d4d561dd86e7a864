"""What the broker shows of itself, out of its parts' own ``statistics()``, so that page and ``/metrics`` agree.

Samples and series over time, on disk too (``history``, ``series``); what limits the broker and what a change did
(``bottleneck``, ``effect``); the text for Prometheus (``prometheus``), also by the names that Kafka's
dashboards know.
"""
