"""Carries out a declaration: at a start of the broker, before clients are served. One of several brokers serves
already, since it may take others of them, and is not ready until all is there; whichever comes first does it.

Everything is checked by what makes such changes for clients, too, before the first change is made. A crash between two
changes leaves a part of them, and the next start makes the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

import attrs
import trio

from kafka_wire.errors import KafkaError
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import ChangeChannel, ChangeOrigin
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.declared_credentials import plan_credentials_on_image, set_passwords
from trio_broker.cluster.declared_topics import additional_partitions, change_topics, plan_topics_on_image
from trio_broker.cluster.declared_users import (
    grant_rights,
    plan_default_quotas_on_image,
    plan_users_on_image,
    set_quotas,
)
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.replication_control import require_room
from trio_broker.concurrency.barrier import Backoff
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.declaration.credential_plan import CredentialPlan
from trio_broker.declaration.declaration import Declaration, DeclarationError, DeclaredCredential
from trio_broker.declaration.plan import Plan, TopicPlan, difference_lines
from trio_broker.declaration.user_plan import DefaultQuotaPlan, UserPlan
from trio_broker.runtime.runtime import Runtime

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
"""Before another attempt, twice as long each time: in a new cluster the next broker comes about as soon."""

MAX_PAUSE_SECONDS: Final = 60.0
"""What somebody has to mend is looked at so often."""


@attrs.frozen
class DeclarationPlan:
    """What is to be done about all that is declared."""

    topics: tuple[TopicPlan, ...]
    default_quotas: tuple[DefaultQuotaPlan, ...]
    users: tuple[UserPlan, ...]
    credentials: tuple[CredentialPlan, ...]

    @property
    def all(self) -> tuple[Plan, ...]:
        return (*self.topics, *self.default_quotas, *self.users, *self.credentials)

    def credentials_of(self, declared: Collection[DeclaredCredential]) -> list[CredentialPlan]:
        """What is to be done about some of the passwords."""
        return [each for each in self.credentials if each.declared in declared]


@attrs.define
class Declarator:
    """Compares ``declaration`` with a cluster and makes the difference."""

    declaration: Declaration
    config: BrokerConfig
    runtime: Runtime

    async def plan(self, image: MetadataImage) -> DeclarationPlan:
        """Return what is to be done.

        Raises:
            DeclarationError: it contradicts what exists, or a setting is unknown.
        """
        return DeclarationPlan(
            plan_topics_on_image(self.declaration, image, self.config),
            plan_default_quotas_on_image(self.declaration, image),
            plan_users_on_image(self.declaration, image, self.config),
            await plan_credentials_on_image(self.declaration, image, self.runtime),
        )

    async def declare_until_done(
        self, controller: ControllerClient, image: Callable[[], MetadataImage], note: Callable[[str], None]
    ) -> None:
        """Try until all is there: the cluster may not have all its brokers, or another one makes the same change.

        ``note`` gets the reason of each failure, and nothing at the end.
        """
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while True:
            try:
                await self.declare(controller, image())
            except DeclarationError as error:
                log.warning("what is declared is not there yet: %s", error)
                note(f"what is declared is not there yet: {error}")
                await trio.sleep(backoff.next_pause())
            else:
                note("")
                return

    async def declare(self, controller: ControllerClient, image: MetadataImage) -> None:
        """Make what is declared and missing. Nobody else makes changes meanwhile.

        Raises:
            DeclarationError: nothing was changed, because a part of the declaration is refused; or the disk has
                refused.
        """
        plan = await self.plan(image)
        origin = self.declaration.origin
        token = CALLER.set(ChangeOrigin(ChangeChannel.DECLARATION, request=origin))
        try:
            for validate_only in (True, False):
                await self.carry_out(plan, controller, image, validate_only=validate_only)
        finally:
            # Tasks that the caller starts later inherit its context.
            CALLER.reset(token)
        for line in difference_lines(each for each in plan.all if not each.is_done):
            log.info("declared by %s: %s", origin, line)

    async def carry_out(
        self, plan: DeclarationPlan, controller: ControllerClient, image: MetadataImage, *, validate_only: bool
    ) -> None:
        """Make all changes to what is in ``image``, or only check them.

        Raises:
            DeclarationError: some are refused, or the disk has refused.
        """
        try:
            reasons: list[str] = []
            if validate_only:
                require_room(image.partition_count, additional_partitions(plan.topics, self.config))
            else:
                # Before all else: with anything in it the cluster is not new any more, after a crash.
                first = plan.credentials_of(self.declaration.first_credentials)
                reasons += await set_passwords(first, controller, self.runtime)
            reasons += await change_topics(plan.topics, controller, validate_only=validate_only)
            reasons += await set_quotas(plan.users, plan.default_quotas, controller, validate_only=validate_only)
            if not validate_only:
                # In this order, so that who can log in has all rights.
                reasons += await grant_rights(plan.users, controller)
                others = plan.credentials_of(self.declaration.credentials)
                reasons += await set_passwords(others, controller, self.runtime)
        except (KafkaError, OSError) as error:
            # It is about a request as a whole.
            reasons = [f"{self.declaration.origin}: {error}"]
        if reasons:
            raise DeclarationError(reasons)
