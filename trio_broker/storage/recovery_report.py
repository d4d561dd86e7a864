"""What opening a log found and did."""

from __future__ import annotations

import logging
from pathlib import PurePath

import attrs

from trio_broker.common.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


@attrs.define
class RecoveryReport:
    """All zero and empty after a clean stop."""

    topic_partition: TopicPartition
    was_clean: bool
    recovered_segments: int = 0
    cut_bytes: int = 0
    kept_aside: list[PurePath] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)

    def note(self, problem: str, level: int = logging.WARNING) -> None:
        """Log a problem and keep it."""
        logger.log(level, "%s: %s", self.topic_partition, problem)
        self.problems.append(problem)
