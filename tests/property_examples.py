"""How many examples a property test takes, where one takes fewer than the profile says (``tests/conftest.py``)."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import settings


def examples(share: Fraction) -> settings:
    """Settings that take ``share`` of the profile's examples, at least two. Use it where an example takes long."""
    return settings(max_examples=max(2, int(settings().max_examples * share)))
