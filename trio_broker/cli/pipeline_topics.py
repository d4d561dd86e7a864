"""The options of the pipelines that write topics: target, compression, partitions and rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import attrs
import click

from kafka_wire.records.compression import Codec
from trio_broker.cli.connecting import PROPERTIES_FILE, addresses, client_security
from trio_broker.cli.pipeline_options import option
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.client.security import ClientSecurity
from trio_broker.spark.options.kafka_options import DEFAULT_CLIENT_ID
from trio_broker.spark.pipelines.rounds.target_topics import Partitions
from trio_broker.spark.pipelines.rounds.token_bucket import RateLimit

CODECS: Final = [codec.name.lower() for codec in Codec]
RATE: Final = click.FloatRange(min=0, min_open=True)


@attrs.frozen
class TopicOptions:
    """Writing."""

    to_topic: str | None = option(
        "--to-topic", metavar="TOPIC", help="The topic to write to.  [default: the name of the topic of each record]"
    )
    to_bootstrap_server: str | None = option(
        "--to-bootstrap-server",
        metavar="HOST:PORT[,HOST:PORT…]",
        help="The cluster to write to.  [default: the cluster that is read]",
    )
    to_security: ClientSecurity | None = option(
        "--to-command-config",
        type=PROPERTIES_FILE,
        callback=lambda context, parameter, file: None if file is None else client_security(context, parameter, file),
        metavar="PATH",
        help="A client's properties for the cluster to write to.  [default: those of reading, for the same cluster]",
    )
    checkpoint: Path = option(
        "--checkpoint",
        required=True,
        type=click.Path(file_okay=False, path_type=Path),
        help="The directory of the job's progress. The same command continues from it.",
    )
    partitions: str = option(
        "--partitions",
        type=click.Choice([each.value for each in Partitions]),
        default=Partitions.KEEP.value,
        show_default=True,
        help="Keep each record's partition number, or choose the partition by the record's key.",
    )
    compression: str = option(
        "--compression", type=click.Choice(CODECS), default="lz4", show_default=True, help="How batches are compressed."
    )
    row_ids: bool = option(
        "--row-ids/--no-row-ids",
        default=True,
        show_default=True,
        help="Add a header by which consumers recognise a record that was written twice after a crash.",
    )
    exactly_once: bool = option(
        "--exactly-once",
        is_flag=True,
        help="Write in transactions: readers of committed records see each record once. No row ids are added then.",
    )
    max_records_per_second: float | None = option(
        "--max-records-per-second", type=RATE, metavar="COUNT", help="The limit for all tasks together."
    )
    max_bytes_per_second: float | None = option(
        "--max-bytes-per-second",
        type=RATE,
        metavar="BYTES",
        help="The limit for keys, values and headers of all tasks together.",
    )

    @property
    def limit(self) -> RateLimit:
        """How fast records may be written."""
        return RateLimit(self.max_records_per_second, self.max_bytes_per_second)

    def settings(self, default: ConnectionSettings) -> dict[str, Any]:
        """Return the common fields of ``ReplaySettings`` and ``RestoreSettings``.

        Records are written to the cluster of ``default`` unless another is named, which gets no passwords of it.

        Raises:
            click.UsageError: no cluster is named.
        """
        servers, security = default.bootstrap, default.security
        if self.to_bootstrap_server is not None:
            servers, security = addresses(self.to_bootstrap_server), ClientSecurity()
        if not servers:
            raise click.UsageError("say which cluster to write to: --to-bootstrap-server")
        return {
            "target": ProducerSettings(
                servers,
                client_id=DEFAULT_CLIENT_ID,
                security=self.to_security or security,
                codec=Codec[self.compression.upper()],
                # The topics were checked or created before. One that is deleted meanwhile must end the job.
                allow_auto_topic_creation=False,
            ),
            "checkpoint": self.checkpoint,
            "topic": self.to_topic,
            "partitions": Partitions(self.partitions),
            "limit": self.limit,
            "with_row_ids": self.row_ids and not self.exactly_once,
            "is_exactly_once": self.exactly_once,
        }
