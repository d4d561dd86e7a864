"""Tune a running broker over its admin API: read the threads, double ``num.io.threads``, see a refusal, reset it.

    python examples/tune_over_http.py [http://host:port]

A change is on the disk and in effect when the response arrives. A Kafka client's IncrementalAlterConfigs does the same.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import Any

KEY = "num.io.threads"
# No web page of another origin can make a browser send these, so the API asks for them.
HEADERS = {"Content-Type": "application/json", "X-Requested-With": "tune_over_http"}


def read(admin: str, path: str) -> Any:
    with urllib.request.urlopen(f"{admin}/api/v1/{path}", timeout=10) as response:
        return json.load(response)


def change(admin: str, value: int | None) -> None:
    """Set the key; None resets it to the value of the file or the default."""
    body = json.dumps({KEY: value}).encode()
    request = urllib.request.Request(f"{admin}/api/v1/config", data=body, headers=HEADERS, method="PATCH")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            entry = json.load(response)["configs"][KEY]
            print(f"{KEY} = {entry['value']} ({entry['source']})")
    except urllib.error.HTTPError as refused:
        print(f"{KEY} = {value} is refused with {refused.code}: {refused.read().decode().strip()}")


def main(admin: str) -> None:
    [broker] = read(admin, "brokers")["items"]
    threads = read(admin, f"brokers/{broker['node_id']}/threads")
    size = threads["io"]["size"]
    print(f"{size} I/O threads, {threads['io']['idle_ratio']:.0%} idle, queue {threads['queue']['depth']} deep")
    change(admin, 2 * size)
    change(admin, 1000)  # more than a pool may have
    change(admin, None)


if __name__ == "__main__":
    main((sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9644").rstrip("/"))
