"""The one switch of all workarounds: the environment variable ``TRIO_BROKER_SPARK_WORKAROUNDS``.

It counts in the process that reads it: the driver, or a worker of PySpark, which a JVM starts with its own environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from trio_broker.spark.errors import OptionError

VARIABLE: Final = "TRIO_BROKER_SPARK_WORKAROUNDS"


def are_workarounds_on(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether PySpark is to be worked around, which is the default.

    Raises:
        OptionError: the variable is neither ``on`` nor ``off``.
    """
    value = environment.get(VARIABLE, "on")
    if value not in ("on", "off"):
        raise OptionError(VARIABLE, f"is on or off, not {value!r}")
    return value == "on"
