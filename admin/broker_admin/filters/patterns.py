"""Regular expressions of filters: RE2's, which takes time linear in the text, whatever the pattern.

Source: docs/decisions/0023-regular-expressions-by-re2.md.
"""

from __future__ import annotations

from typing import Any

from broker_admin.filters.errors import FilterSyntaxError

MAX_PATTERN_LENGTH = 1000
"""Characters of a pattern; ones that people write have some dozens."""

MAX_PATTERN_MEMORY_BYTES = 1024 * 1024
"""What the automaton of one pattern may take. A larger one is refused when it is compiled."""

MAX_UNICODE_CLASSES = 4
"""Each ``\\p{…}`` takes a thousand instructions and a hundred microseconds to compile."""


def compile_pattern(pattern: str, position: int) -> Any:
    """``pattern``, compiled.

    Raises:
        FilterSyntaxError: it is malformed, or too large.
    """
    # Imported here: a broker on whose pages nobody filters needs neither the time nor the memory.
    import re2

    if len(pattern) > MAX_PATTERN_LENGTH:
        raise FilterSyntaxError(f"a pattern has at most {MAX_PATTERN_LENGTH} characters", position)
    if pattern.count(r"\p") + pattern.count(r"\P") > MAX_UNICODE_CLASSES:
        raise FilterSyntaxError(f"a pattern has at most {MAX_UNICODE_CLASSES} Unicode classes", position)
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_PATTERN_MEMORY_BYTES
    try:
        return re2.compile(pattern.encode("utf-8", "replace"), options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be compiled"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise FilterSyntaxError(f"the pattern is none of RE2's: {text}", position) from None
