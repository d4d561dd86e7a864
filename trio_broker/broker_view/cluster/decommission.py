"""Brokers that leave, for the admin app: what the image says of them, and the setting by which they do."""

from __future__ import annotations

from broker_admin.views.cluster.decommission import DecommissionRefused
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.broker_view.cluster.config import alteration
from trio_broker.broker_view.cluster.topic_changes import called_by
from trio_broker.cluster.configuration_control import ResourceAlterations
from trio_broker.cluster.decommission import decommission_progress
from trio_broker.cluster.decommission_progress import DecommissionProgress
from trio_broker.cluster.metadata_image import ConfigResource
from trio_broker.common.setting_names import DECOMMISSION
from trio_broker.concurrency.steps import run_steps
from trio_broker.handlers.support.services import BrokerServices


class LiveDecommissionView:
    """The part of the admin app's view that is about brokers that leave."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def progress(self, broker_id: int, *, is_asked: bool = False) -> DecommissionProgress:
        services = self._services
        try:
            return await run_steps(
                decommission_progress(services.metadata_cache.image, services.config, broker_id, is_asked=is_asked)
            )
        except KafkaError as error:
            raise refused(error) from error

    async def begin(self, broker_id: int, *, changed_by: str, dry_run: bool) -> DecommissionProgress:
        await self.progress(broker_id)
        await self._set(broker_id, "true", changed_by=changed_by, dry_run=dry_run)
        return await self.progress(broker_id, is_asked=True)

    async def cancel(self, broker_id: int, *, changed_by: str, dry_run: bool) -> DecommissionProgress:
        await self.progress(broker_id)
        await self._set(broker_id, None, changed_by=changed_by, dry_run=dry_run)
        return await self.progress(broker_id)

    async def _set(self, broker_id: int, value: str | None, *, changed_by: str, dry_run: bool) -> None:
        wanted = ResourceAlterations(ConfigResource.of_broker(broker_id), (alteration(DECOMMISSION, value),))
        with called_by(changed_by):
            outcome = await self._services.controller_client.change_configs([wanted], validate_only=dry_run)
        [result] = outcome.results
        if isinstance(result, KafkaError):
            raise refused(result)


def refused(error: KafkaError) -> DecommissionRefused:
    return DecommissionRefused(ErrorCode(error.code).name, str(error))
