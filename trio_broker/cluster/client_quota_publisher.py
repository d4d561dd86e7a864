"""Passes the quotas of the metadata to those that keep clients within them.

Source: Kafka's ClientQuotaMetadataManager and DynamicClientQuotaPublisher.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kafka_wire.stored.metadata import ClientQuotaRecord
from trio_broker.cluster.client_quota_control import quotas_of
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.quota.quota_managers import QuotaManagers


@attrs.define(eq=False)
class ClientQuotaPublisher:
    """See the head of the file."""

    quotas: QuotaManagers
    _seen: Mapping[Any, Any] | None = None

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow what ``delta`` has changed."""
        self.apply_image(image)

    def apply_image(self, image: MetadataImage) -> None:
        """Follow ``image``, at a start as well."""
        records = image.keyed_records.get(ClientQuotaRecord)
        if records is not self._seen:
            self._seen = records
            self.quotas.update(quotas_of(image))
