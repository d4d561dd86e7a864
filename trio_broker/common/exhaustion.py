"""When accepting connections pauses: the process or the system has run out of something. Then it tries again."""

from __future__ import annotations

import errno
from typing import Final

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""The process or the system has run out of something that closing connections frees."""

EXHAUSTED_PAUSE_SECONDS: Final = 0.1
"""Between two tries meanwhile: short against a client's connect timeout, long against spinning."""
