"""What the broker shows of itself: samples for the page (``history``), topics with their partitions (``topics``), and
the text for Prometheus (``prometheus``). All read the parts' own ``statistics()``, so page and ``/metrics`` agree.
"""
