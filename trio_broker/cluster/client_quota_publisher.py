"""Passes the quotas of the metadata to those that keep clients within them.

Source: Kafka's ClientQuotaMetadataManager and DynamicClientQuotaPublisher.
"""

from __future__ import annotations

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

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow what ``delta`` has changed."""
        if image.records_of(ClientQuotaRecord) is not delta.image.records_of(ClientQuotaRecord):
            self.apply_image(image)

    def apply_image(self, image: MetadataImage) -> None:
        """Go by the quotas of ``image``, at a start as well."""
        self.quotas.update(quotas_of(image))
