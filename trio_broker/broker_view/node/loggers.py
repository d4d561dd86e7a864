"""The loggers of a running broker, for the admin app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker_admin.views.cluster.config import ConfigRefusal
from broker_admin.views.node.loggers import LoggerChangeResult, LoggerDifference
from kafka_wire.errors import KafkaError
from trio_broker.broker_view.cluster.config import alteration, settings_in
from trio_broker.cluster.configuration_control import ResourceAlterations
from trio_broker.cluster.logger_levels import change_levels
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType
from trio_broker.config.entries import LoggerLevel
from trio_broker.config.errors import ConfigError
from trio_broker.config.loggers import check_level, logger_levels
from trio_broker.handlers.support.services import BrokerServices


class LiveLoggersView:
    """The part of the admin app's view that is about loggers."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services

    def levels(self) -> Sequence[LoggerLevel]:
        return logger_levels()

    async def change(self, levels: Mapping[str, str | None], *, dry_run: bool = False) -> LoggerChangeResult:
        refusals = []
        for name, level in levels.items():
            try:
                check_level(name, level)
            except ConfigError as error:
                refusals.append(ConfigRefusal(name, str(error)))
        if refusals:
            return LoggerChangeResult(refusals=tuple(refusals))
        services = self.services
        resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, str(services.node.node_id))
        wanted = ResourceAlterations(resource, tuple(alteration(name, level) for name, level in levels.items()))
        before, after = logger_levels(), logger_levels(levels)
        try:
            changes = change_levels(wanted, services.config, services.changes, validate_only=dry_run)
        except KafkaError as error:
            return LoggerChangeResult(refusals=(ConfigRefusal("", str(error)),))
        pairs = zip(before, after, strict=True)
        differences = tuple(LoggerDifference(old, new) for old, new in pairs if old != new)
        return LoggerChangeResult(differences, changes=settings_in(changes))
