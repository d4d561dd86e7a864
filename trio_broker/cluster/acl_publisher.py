"""Follows the access control entries in the metadata with the authorizer. Implements ``MetadataSubscriber``.

Source: Kafka's AclPublisher.
"""

from __future__ import annotations

import attrs

from trio_broker.cluster.acl_control import acl_of, acl_records
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.security.standard_authorizer import StandardAuthorizer


@attrs.define(eq=False)
class AclPublisher:
    """Nothing waits between two changes of one batch: an entry that allows does not count before one that denies."""

    authorizer: StandardAuthorizer

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow ``delta``, which has led to ``image``."""
        self.follow(delta.image, image)

    def follow(self, before: MetadataImage, after: MetadataImage) -> None:
        """Take over what differs from ``before`` in ``after``."""
        old, new = acl_records(before), acl_records(after)
        if old is new:
            return
        for acl_id in old.keys() - new.keys():
            self.authorizer.remove(acl_id)
        for acl_id, record in new.items():
            if old.get(acl_id) is not record:
                self.authorizer.add(acl_id, acl_of(record))
