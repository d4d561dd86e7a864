"""Kafka's own dump tool on our snapshots of the metadata log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.test_metadata_snapshot import HISTORY, fold
from tests.fakes.metadata_logs import append, leading_log, take_snapshot
from tests.java_programs import Java
from trio_broker.cluster.metadata_snapshot import image_records
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime


@pytest.mark.compat
async def test_kafka_reads_a_snapshot_as_we_meant_it_and_the_log_after_it(tmp_path: Path, java: Java) -> None:
    log = leading_log(tmp_path, real_runtime(ManualClock()))
    await append(log, HISTORY)
    records = list(image_records(fold(log.replay())))
    take_snapshot(log, records)
    await append(log, HISTORY[:1])
    log.close()
    assert log.snapshot is not None
    directory = tmp_path / "__cluster_metadata-0"
    [segment] = directory.glob("*.log")

    def dump(path: Path) -> dict[str, object]:
        arguments = ["--cluster-metadata-decoder", "--files", str(path)]
        return {"tool": "org.apache.kafka.tools.DumpLogSegments", "arguments": arguments}

    snapshot, rest = java.run("RunTools", given=[dump(directory / log.snapshot.file_name), dump(segment)])
    assert (snapshot["code"], rest["code"]) == (0, 0), (snapshot, rest)
    text = snapshot["out"]
    assert "Snapshot end offset: 16, epoch: 1" in text
    assert "SnapshotHeader " in text
    assert "SnapshotFooter " in text
    for record in records:
        assert f'"type":"{record.__class__.__name__.removesuffix("Record").upper()}' in text.replace("_", "")
    assert text.count('payload: {"type"') == len(records)
    assert "isvalid: false" not in text + rest["out"]
    assert "Log starting offset: 16" in rest["out"]
    assert '"type":"FEATURE_LEVEL_RECORD"' in rest["out"]
