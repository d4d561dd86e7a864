"""Changes the settings of a broker that resize something, live and at random, while others put it under load.

The keys are those of thread pools and of the request queue. A change goes by HTTP to the admin API or by a Kafka
client's IncrementalAlterConfigs; the latter may at most double or halve a pool, so it goes further in several steps.

Source: Kafka's DynamicThreadPool for the rule of half and double.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from types import TracebackType
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.waits import scaled, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
"""What one change may take."""

SIZES = {
    "num.network.threads": (1, 8),
    "num.io.threads": (1, 24),
    "log.cleaner.threads": (1, 4),
    "queued.max.requests": (1, 1000),
}
"""The least and the most of each key."""

UNBOUNDED = "queued.max.requests"
"""It is no pool, so a Kafka client may set any value of it."""

AT_MOST_APART_SECONDS = 0.1


class ThreadTuner:
    """Changes sizes inside the block; at its end they are the defaults again. ``changes`` counts by key and way."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.broker = broker
        self.changes: Counter[str] = Counter()
        self._random = Random(seed)
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        self._enough = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="thread tuner")

    def __enter__(self) -> ThreadTuner:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raises the error that ended the changes early, if there was one."""
        self._enough.set()
        self._thread.join()
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            sizes = self._sizes()
            while True:
                # All keys in turn, so that each is changed however short the load is.
                for key in self._random.sample(list(SIZES), len(SIZES)):
                    self._change(key, sizes)
                if self._enough.wait(self._random.uniform(0, AT_MOST_APART_SECONDS)):
                    break
            self._patch(dict.fromkeys(SIZES))
        except BaseException as failure:
            self._failure = failure

    def _change(self, key: str, sizes: dict[str, int]) -> None:
        least, most = SIZES[key]
        by_http = self._random.random() < 0.5
        if not by_http and key != UNBOUNDED:
            least, most = max(least, sizes[key] // 2), min(most, sizes[key] * 2)
        size = self._random.choice([each for each in range(least, most + 1) if each != sizes[key]])
        change: Callable[[str, int], None] = self._change_by_http if by_http else self._change_by_kafka_client
        change(key, size)
        sizes[key] = size
        self.changes[f"{key} by {'HTTP' if by_http else 'a Kafka client'}"] += 1

    def _sizes(self) -> dict[str, int]:
        resource = ConfigResource(ResourceType.BROKER, "1")
        entries = within(self._admin.describe_configs([resource])[resource].result, SECONDS)
        return {key: int(entries[key].value) for key in SIZES}

    def _change_by_http(self, key: str, size: int) -> None:
        self._patch({key: size})

    def _patch(self, values: Mapping[str, Any]) -> None:
        request = urllib.request.Request(
            f"{self.broker.admin_url}api/v1/config",
            data=json.dumps(values).encode(),
            headers={"X-Requested-With": "test", "Content-Type": "application/json"},
            method="PATCH",
        )
        with urllib.request.urlopen(request, timeout=scaled(SECONDS)) as response:
            assert response.status == 200

    def _change_by_kafka_client(self, key: str, size: int) -> None:
        entry = ConfigEntry(key, str(size), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        within(self._admin.incremental_alter_configs([resource])[resource].result, SECONDS)
