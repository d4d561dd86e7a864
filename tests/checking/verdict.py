"""What a test says of a run that a seed drew, and the seed of a run in the night."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.checking.history import Violation

CHAOS_SEED: Final = "CHAOS_SEED"
"""The variable that repeats a run of faults."""


class Report(Protocol):
    """What came of a run; as text, how much there was to check."""

    @property
    def violations(self) -> Sequence[Violation]: ...


def drawn_seed(variable: str = CHAOS_SEED) -> int:
    """The seed that ``variable`` asks for, or any; printed at once, for a run that raises or never ends."""
    seed = int(os.environ.get(variable) or secrets.randbelow(1_000_000))
    print(f"\n{variable}={seed}", flush=True)
    return seed


def judge(report: Report, seed: int, directory: Path, variable: str = CHAOS_SEED) -> None:
    """Print how much there was to check in the run of ``seed``, and fail with the promises that it broke."""
    print(report)
    if report.violations:
        violations = "\n".join(str(violation) for violation in report.violations)
        pytest.fail(f"{variable}={seed}, history in {directory}:\n{violations}", pytrace=False)
