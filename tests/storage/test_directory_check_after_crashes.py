"""What kills, power cuts, stops and compaction leave is no damage."""

from __future__ import annotations

import pytest

from tests.storage.directory_findings import findings_in
from tests.storage.interrupted_logs import DATA, InterruptedLogs
from trio_broker.storage.directory_check import TopicFacts
from trio_broker.storage.findings import FindingKind, StorageFinding

TOPICS = TopicFacts(compacted={"compacted"}, is_known=True)


class CheckedLogs(InterruptedLogs):
    """Checks the data directory before each start."""

    checks = 0

    def _open(self) -> None:
        if self.disk.exists(DATA / "meta.properties"):
            findings = [each for each in findings_in(self.disk, DATA, TOPICS) if not self._was_cut(each)]
            assert findings == [], "\n".join(self.story[-20:])
            self.checks += 1
        super()._open()

    def _was_cut(self, finding: StorageFinding) -> bool:
        """A log that was truncated ends before its recovery point; only a follower would do that."""
        return finding.kind is FindingKind.LOST_BATCHES and any("truncate" in step for step in self.story)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_damaged_after_kills_power_cuts_and_stops(seed: int) -> None:
    logs = CheckedLogs(seed)
    logs.run()
    assert logs.checks


@pytest.mark.soak
@pytest.mark.parametrize("first", range(20, 2020, 100))
def test_nothing_is_damaged_after_many_more(first: int) -> None:
    for seed in range(first, first + 100):
        CheckedLogs(seed).run()
