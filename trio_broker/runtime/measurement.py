"""The stopwatch for figures: how long something took on this machine, in nanoseconds.

It is no part of the ``Runtime``, since nothing may be decided by it: what it measures is shown, and a simulation that
is repeated takes another time. What decides something asks a ``Clock`` or Trio. Which modules may measure is said in
``pyproject.toml``.
"""

from __future__ import annotations

from time import perf_counter_ns as perf_counter_ns
