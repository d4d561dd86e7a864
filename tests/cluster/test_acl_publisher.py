"""The authorizer follows the entries of the image, and allows nothing on the way."""

from __future__ import annotations

import pytest

from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.stored.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from trio_broker.cluster.acl_control import acl_of
from trio_broker.cluster.acl_publisher import AclPublisher
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.security.standard_authorizer import StandardAuthorizer


def record(number, *, principal="User:alice", permission=AclPermissionType.ALLOW):
    return AccessControlEntryRecord(
        id=bytes([number] * 16),
        resource_type=ResourceType.TOPIC,
        resource_name="orders",
        pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=AclOperation.READ,
        permission_type=permission,
    )


ALLOWS, DENIES = record(0), record(1, permission=AclPermissionType.DENY)
OTHER = record(2, principal="User:bob")


def without(record):
    return RemoveAccessControlEntryRecord(id=record.id)


class Following:
    """An authorizer that follows an image, to which batches are added."""

    def __init__(self, *, allow_everyone=False):
        self.authorizer = StandardAuthorizer(allow_everyone_if_no_acl_found=allow_everyone)
        self.image = MetadataImage()

    def answers(self, *records, who="alice"):
        """Whether ``who`` may read after each step of following ``records``, and the ids of all entries then."""
        delta, before = MetadataDelta(self.image), self.image
        for record in records:
            delta.replay(record)
        self.image = delta.apply(offset=before.offset + 1, epoch=0)
        steps = AclPublisher(self.authorizer).follow(before, self.image)
        said = [self.may(who) for _ in steps]
        kept = self.image.records_of(AccessControlEntryRecord)
        assert self.authorizer.acls == {acl_id: acl_of(record) for acl_id, record in kept.items()}
        return [*said, self.may(who)]

    def may(self, who):
        return self.authorizer.authorize(
            KafkaPrincipal("User", who), "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "orders"
        )


@pytest.mark.parametrize("records", [(ALLOWS, DENIES), (DENIES, ALLOWS)])
def test_what_comes_together_with_a_denial_never_counts(records):
    following = Following()
    assert not any(following.answers(*records))
    assert not any(following.answers(*map(without, records)))


def test_entries_come_and_go():
    following = Following()
    assert following.answers(ALLOWS)[-1]
    assert following.answers(OTHER)[-1]
    assert not following.answers(without(ALLOWS))[-1]


def test_a_resource_whose_entries_are_replaced_is_open_to_nobody_on_the_way():
    following = Following(allow_everyone=True)
    assert following.answers(who="carol") == [True]
    assert following.answers(ALLOWS, who="carol")[-1] is False
    assert not any(following.answers(without(ALLOWS), OTHER, who="carol"))
