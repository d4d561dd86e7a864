"""kcat against a real broker process. Debian's is built on librdkafka 2.0.2, an old one (trap 8)."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from trio_broker.testing.process import BrokerProcess

KCAT = shutil.which("kcat")

pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")

SECONDS = 60


def kcat(broker: BrokerProcess, *arguments: str, text: str = "") -> str:
    assert KCAT is not None
    completed = subprocess.run(
        [KCAT, "-b", broker.bootstrap_servers, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return completed.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_piped_in_comes_out(broker: BrokerProcess, topic: str, codec: str) -> None:
    text = "".join(f"line {number} of a text that repeats itself\n" for number in range(1000))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-z", codec, text=text)

    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == text


def test_trap_8_an_old_librdkafka_compresses(broker: BrokerProcess, topic: str) -> None:
    text = "the same line again and again\n" * 5000
    kcat(broker, "-P", "-t", topic, "-p", "0", "-z", "gzip", text=text)

    [log] = broker.data_directory.glob(f"{topic}-0/*.log")
    assert log.stat().st_size < len(text) / 10


def test_the_cluster_is_listed(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, text="x\n")
    listed = json.loads(kcat(broker, "-L", "-J"))

    assert [node["name"] for node in listed["brokers"]] == [broker.bootstrap_servers]
    assert topic in [entry["topic"] for entry in listed["topics"]]


def test_an_offset_is_found_by_time(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", text="a\nb\n")

    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").split()[-1] == "2"
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-2").split()[-1] == "0"
