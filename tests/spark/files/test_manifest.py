"""Manifests as a broker's admin app tells them, and as something else at its address might."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.spark.log_files import CLUSTER_ID, LogFiles
from trio_broker.spark.errors import SourceUnavailable
from trio_broker.spark.files import manifest as manifest_module
from trio_broker.spark.files.manifest import (
    AbortedRange,
    BadManifest,
    BrokerManifests,
    IndexEntry,
    LogSegment,
    NoSuchTopic,
    parse_manifest,
)

GOOD: dict[str, Any] = {
    "version": 1,
    "cluster_id": CLUSTER_ID,
    "node_id": 1,
    "topic": "orders",
    "topic_id": "AAECAwQFBgcICQoLDA0ODw",
    "partitions": [
        {
            "partition": 0,
            "error": None,
            "log": {
                "log_directory": "/data",
                "directory_name": "orders-0",
                "leader_epoch": 3,
                "log_start_offset": 5,
                "last_stable_offset": 18,
                "high_watermark": 20,
                "segments": [
                    {"base_offset": 0, "next_offset": 10, "size_bytes": 1000, "inode": 2**64 - 1},
                    {"base_offset": 10, "next_offset": 21, "size_bytes": 500},
                ],
                "active_positions": [{"offset": 12, "position": 100}],
                "aborted_transactions": [{"producer_id": 7, "first_offset": 6, "last_offset": 9}],
            },
        },
        {"partition": 1, "error": "the disk failed", "log": None},
    ],
}


class Server:
    """A web server that answers every GET with what ``answer`` says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status, self.body = 200, json.dumps(GOOD).encode()
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []
        self.credentials: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                server.credentials.append(self.headers.get("Authorization"))
                self.send_response(server.status)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, *arguments: object) -> None:
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The good manifest with one thing changed."""
    tree = json.loads(json.dumps(GOOD))
    change(tree)
    return json.dumps(tree).encode()


# --- What it says ---


def test_everything_is_read() -> None:
    manifest = parse_manifest(json.dumps(GOOD).encode(), "orders")
    log = manifest.log(0)
    assert (manifest.cluster_id, log.topic_id) == (CLUSTER_ID, "AAECAwQFBgcICQoLDA0ODw")
    assert (log.log_directory, log.directory_name, log.leader_epoch) == ("/data", "orders-0", 3)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (5, 18, 20)
    assert log.segments == (
        LogSegment(0, 10, 1000, inode=2**64 - 1),
        LogSegment(10, 21, 500, is_active=True),  # as older brokers describe it
    )
    assert log.active_positions == (IndexEntry(12, 100),)
    assert log.aborted == (AbortedRange(7, 6, 9),)


def test_a_partition_with_an_error_is_reported_with_it() -> None:
    manifest = parse_manifest(json.dumps(GOOD).encode(), "orders")
    with pytest.raises(SourceUnavailable, match="orders-1: the disk failed"):
        manifest.log(1)
    with pytest.raises(NoSuchTopic, match="topic 'orders' has no partition 2"):
        manifest.log(2)


def test_a_task_receives_only_what_it_needs() -> None:
    log = parse_manifest(json.dumps(GOOD).encode(), "orders").log(0)
    old = log.between(5, 10)
    assert (len(old.segments), old.active_positions, len(old.aborted)) == (1, (), 1)
    young = log.between(10, 20)
    assert (len(young.segments), len(young.active_positions), young.aborted) == (1, 1, ())
    assert young.segments[0].is_active


def log_of(tree: dict[str, Any]) -> Any:
    return tree["partitions"][0]["log"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tree: tree.update(version=2), "version 2 is not 1"),
        (lambda tree: tree.update(topic="other"), "it is that of 'other'"),
        (lambda tree: tree.pop("cluster_id"), "cluster_id"),
        (lambda tree: tree["partitions"].append(tree["partitions"][0]), "partition 0 is there twice"),
        (lambda tree: tree["partitions"][0].update(partition="0"), "partition is '0'"),
        (lambda tree: tree["partitions"][0].update(partition=True), "partition is True"),
        (lambda tree: log_of(tree).update(directory_name="../etc"), "no name of a directory"),
        (lambda tree: log_of(tree).update(directory_name=".."), "no name of a directory"),
        (lambda tree: log_of(tree).update(segments=[]), "has no segments"),
        (lambda tree: log_of(tree)["segments"].reverse(), "does not begin at offset"),
        (lambda tree: log_of(tree)["segments"][1].update(base_offset=11), "does not begin at offset 10"),
        (lambda tree: log_of(tree)["segments"][0].update(size_bytes=-1), "size_bytes is -1"),
        (lambda tree: log_of(tree)["segments"][0].update(size_bytes=2**63), "size_bytes is"),
        (lambda tree: log_of(tree).update(high_watermark=22), "not within"),
        (lambda tree: log_of(tree).update(log_start_offset=21), "not within"),
        (lambda tree: log_of(tree).update(last_stable_offset=21), "last stable offset 21"),
        (lambda tree: log_of(tree).update(segments=None), "not iterable"),
        (lambda tree: tree.update(partitions=[7]), "not subscriptable"),
    ],
)
def test_what_contradicts_itself_is_refused(change: Callable[[dict[str, Any]], object], reason: str) -> None:
    with pytest.raises(BadManifest, match=reason) as caught:
        parse_manifest(changed(change), "orders")
    assert str(caught.value).startswith("the manifest of topic 'orders' cannot be read: ")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"<html>", b"\xff", b"[" * 100_000, b"7"])
def test_what_is_no_manifest_is_refused(body: bytes) -> None:
    with pytest.raises(BadManifest, match="cannot be read"):
        parse_manifest(body, "orders")


def test_a_manifest_of_the_admin_app_is_understood(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=600, index_interval_bytes=100)
    files.fill(23)
    log = files.plan()
    assert [each.base_offset for each in log.segments] == [each.base_offset for each in files.log.segments]
    assert [each.size_bytes for each in log.segments] == [each.size for each in files.log.segments]
    assert log.active_positions


# --- How it is asked for ---


def test_the_partitions_that_are_wanted_are_named(server: Server) -> None:
    source = BrokerManifests(server.url + "/", 1)
    assert source.topic_manifest("orders", {2, 0}).topic == "orders"
    source.topic_manifest("orders")
    assert server.asked == [
        "/api/v1/brokers/1/topics/orders/manifest?partition=0&partition=2",
        "/api/v1/brokers/1/topics/orders/manifest",
    ]


def test_a_token_goes_with_every_question_and_is_not_shown(server: Server) -> None:
    source = BrokerManifests(server.url, 1, token="secret-of-a-viewer")
    pickle.loads(pickle.dumps(source)).topic_manifest("orders")
    BrokerManifests(server.url, 1).topic_manifest("orders")
    assert server.credentials == ["Bearer secret-of-a-viewer", None]
    assert "secret" not in repr(source)


def test_proxies_of_the_environment_are_not_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert BrokerManifests(server.url, 1).topic_manifest("orders").topic == "orders"


def test_an_error_is_reported_with_the_option_the_address_and_the_brokers_words(server: Server) -> None:
    server.status, server.body = 403, b'{"detail": "the Host header does not name this server"}'
    with pytest.raises(SourceUnavailable) as caught:
        BrokerManifests(server.url, 1).topic_manifest("orders")
    assert str(caught.value) == (
        f"option 'adminUrl': GET {server.url}/api/v1/brokers/1/topics/orders/manifest: HTTP status 403: "
        "the Host header does not name this server"
    )


def test_an_unknown_topic_is_reported_as_such(server: Server) -> None:
    server.status, server.body = 404, b'{"detail": "there is no such topic here"}'
    with pytest.raises(NoSuchTopic, match="there is no such topic here"):
        BrokerManifests(server.url, 1).topic_manifest("orders")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'"x"', b"", b"\xff\xfe", b"{}"])
def test_an_error_of_somebody_else_is_reported_as_well(server: Server, body: bytes) -> None:
    server.status, server.body = 500, body
    with pytest.raises(SourceUnavailable, match="is this the admin address of a trio-broker"):
        BrokerManifests(server.url, 1).topic_manifest("orders")


def test_a_redirect_is_not_followed(server: Server) -> None:
    server.status, server.body, server.headers = 302, b"", {"Location": "http://127.0.0.1:1/"}
    with pytest.raises(SourceUnavailable, match="HTTP status 302"):
        BrokerManifests(server.url, 1).topic_manifest("orders")
    assert len(server.asked) == 1


def test_an_endless_answer_is_not_read_to_its_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(BadManifest, match="longer than 100 bytes"):
        BrokerManifests(server.url, 1).topic_manifest("orders")


def test_another_clusters_manifest_is_refused(server: Server) -> None:
    with pytest.raises(SourceUnavailable, match="answered for cluster cluster, not for mine: is it another broker"):
        BrokerManifests(server.url, 1, cluster_id="mine").topic_manifest("orders")
    assert BrokerManifests(server.url, 1, cluster_id=CLUSTER_ID).topic_manifest("orders").topic == "orders"


def test_nobody_at_the_address_is_reported_with_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SourceUnavailable, match=rf"option 'adminUrl': GET http://127.0.0.1:{port}/.*refused"):
        BrokerManifests(f"http://127.0.0.1:{port}", 1).topic_manifest("orders")


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SourceUnavailable, match="timed out"):
            BrokerManifests(url, 1, timeout_seconds=0.05).topic_manifest("orders")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "127.0.0.1:9644", "", "http://", "http://127.0.0.1:http"])
def test_an_address_that_is_none_is_reported(url: str) -> None:
    with pytest.raises(SourceUnavailable, match="option 'adminUrl'"):
        BrokerManifests(url, 1).topic_manifest("orders")
