"""partition.metadata: the topic id of a partition directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import partition_metadata
from trio_broker.storage.errors import CorruptCheckpoint

TOPIC_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
CONTENT = b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w"


def test_content_is_kafkas_without_a_final_newline(tmp_path: Path):
    partition_metadata.write(RealDisk(), tmp_path, TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_bytes() == CONTENT
    assert partition_metadata.read(RealDisk(), tmp_path) == TOPIC_ID


def test_a_missing_file_is_none(tmp_path: Path):
    assert partition_metadata.read(RealDisk(), tmp_path) is None


@pytest.mark.parametrize(
    "content", [b"", b"version: 1\ntopic_id: x", b"version: 0\n", b"version: 0\ntopic_id: AA", b"\xff\n\xff"]
)
def test_malformed_content_is_refused(content: bytes):
    with pytest.raises(CorruptCheckpoint):
        partition_metadata.decode(content, "partition.metadata")
