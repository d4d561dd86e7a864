"""Follows the access control entries in the metadata with the authorizer. Implements ``MetadataSubscriber``.

Source: Kafka's AclPublisher.
"""

from __future__ import annotations

from collections.abc import Generator

import attrs

from kafka_wire.acl import AclPermissionType
from trio_broker.cluster.acl_control import acl_of, acl_records
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.yield_budget import in_turns
from trio_broker.security.standard_authorizer import StandardAuthorizer


@attrs.define(eq=False)
class AclPublisher:
    """Keeps the authorizer at the state of the image.

    A batch may take several turns. Meanwhile nobody may do what is allowed neither before nor after it: what denies is
    added first, and taken away last.
    """

    authorizer: StandardAuthorizer

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow ``delta``, which has led to ``image``."""
        await in_turns(self.follow(delta.image, image))

    def follow(self, before: MetadataImage, after: MetadataImage) -> Generator[None, None, None]:
        """Take over what differs from ``before`` in ``after``. Yields after each entry."""
        old, new = acl_records(before), acl_records(after)
        if old is new:
            return
        gone = [acl_id for acl_id in old if acl_id not in new]
        come = [(acl_id, acl_of(record)) for acl_id, record in new.items() if old.get(acl_id) is not record]
        come.sort(key=lambda each: not each[1].is_deny)
        gone.sort(key=lambda acl_id: old[acl_id].permission_type == AclPermissionType.DENY)
        # With both, a resource could be without entries in between, which lets everybody in where that is configured.
        is_both = bool(gone and come)
        for acl_id, acl in come:
            self.authorizer.add(acl_id, acl)
            if not is_both:
                yield
        for acl_id in gone:
            self.authorizer.remove(acl_id)
            if not is_both:
                yield
