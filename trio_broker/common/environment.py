"""The names of environment variables that set what ``trio-broker`` reads.

The variable of a key or option is ``TRIO_BROKER_`` and its name in capitals, with ``_`` for every dot, ``__`` for ``_``
and ``___`` for ``-``: ``num.io.threads`` is ``TRIO_BROKER_NUM_IO_THREADS``. Among keys, the last two occur only in
names of listeners and mechanisms.

Source: the rule for names of Kafka's container image (docker/README.md); Kubernetes' variables of services.
"""

from __future__ import annotations

import re

ENVIRONMENT_PREFIX = "TRIO_BROKER_"

_ESCAPES = {"___": "-", "__": "_", "_": "."}
_SERVICE_VARIABLE = re.compile(r"\w+_SERVICE_(HOST|PORT\w*)|\w+_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")


def environment_name(key: str) -> str:
    """Return the name of the environment variable that sets ``key``."""
    return ENVIRONMENT_PREFIX + key.upper().replace("_", "__").replace("-", "___").replace(".", "_")


def key_of_variable(variable: str) -> str:
    """Return the key that an environment variable sets, if there is such a key: the inverse of ``environment_name``."""
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    return re.sub("_+", lambda found: _ESCAPES.get(found[0], found[0]), name)


def is_of_service(variable: str, value: str) -> bool:
    """Whether Kubernetes has made a variable of a service whose name begins with ``trio-broker``.

    Each container of the namespace gets such variables, and one of them has the name of the variable of ``--port``.
    """
    return bool(
        _SERVICE_VARIABLE.fullmatch(variable) or (variable.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(value))
    )
