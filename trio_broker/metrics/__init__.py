"""The broker's readings of itself: taken once a second, kept for the page, written out for Prometheus.

``reading`` is what is read (totals that only grow, and levels); ``history`` turns two readings into a sample (rates)
and keeps the last minutes of them; ``prometheus`` writes both out. Page and ``/metrics`` show the same numbers, because
both are given the same reading and the same sample.
"""
