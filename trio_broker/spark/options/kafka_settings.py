"""How a job reads from a cluster: the settings that the ``kafka.`` options of a reader make."""

from __future__ import annotations

import logging

import attrs

from trio_broker.client.address import Address
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.security import ClientSecurity
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options import kafka_options as options
from trio_broker.spark.options.option import GivenOptions
from trio_broker.spark.options.security_options import SECURITY_OPTIONS, read_security

log = logging.getLogger(__name__)


@attrs.frozen
class KafkaSettings:
    """Names and meanings are Kafka's. Sizes are bytes; ``receive_buffer_bytes`` of -1 leaves it to the system.

    ``bootstrap_servers`` is empty for a job that reads directories without a broker.
    """

    bootstrap_servers: tuple[Address, ...]
    client_id: str = options.CLIENT_ID.required_default
    security: ClientSecurity = attrs.field(factory=ClientSecurity)
    group_id: str | None = None
    fetch_max_bytes: int = options.FETCH_MAX_BYTES.required_default
    max_partition_fetch_bytes: int = options.MAX_PARTITION_FETCH_BYTES.required_default
    fetch_min_bytes: int = options.FETCH_MIN_BYTES.required_default
    fetch_max_wait_ms: int = options.FETCH_MAX_WAIT_MS.required_default
    request_timeout_ms: int = options.REQUEST_TIMEOUT_MS.required_default
    receive_buffer_bytes: int = options.RECEIVE_BUFFER_BYTES.required_default
    retry_backoff_ms: int = options.RETRY_BACKOFF_MS.required_default
    retry_backoff_max_ms: int = options.RETRY_BACKOFF_MAX_MS.required_default

    @property
    def connection(self) -> ConnectionSettings:
        """How the cluster is reached."""
        return ConnectionSettings(self.bootstrap_servers, self.client_id, self.security, self.receive_buffer_bytes)


def read_kafka_settings(given: GivenOptions) -> KafkaSettings:
    """Return the settings that the ``kafka.`` options among ``given`` make.

    Raises:
        OptionError: one is refused, unknown, or has a value that means nothing.
    """
    _check_names(given)
    if options.GROUP_ID in given:
        group_id = given.text(options.GROUP_ID)
        log.warning("%s is set to %r: no group is joined and no offset committed", options.GROUP_ID.name, group_id)
    fields = given.read_fields(KafkaSettings, options.READ_OPTIONS)
    servers = fields["bootstrap_servers"] or ()
    return KafkaSettings(**{**fields, "bootstrap_servers": servers, "security": read_security(given)})


def _check_names(given: GivenOptions) -> None:
    """Refuse unknown names, and warn of those without effect."""
    used = {option.name for option in options.READ_OPTIONS}
    without_effect = []
    for name in sorted(name for name in given.names() if name.startswith(options.PREFIX) and name not in used):
        if name in options.REFUSED_IN_READING:
            raise OptionError(given.spelling(name), options.REFUSED_IN_READING[name])
        if name.startswith(SECURITY_OPTIONS):
            continue
        if name not in options.UNUSED_IN_READING:
            raise OptionError(given.spelling(name), f"Kafka knows no such config{options.kafka_hint(name)}")
        without_effect.append(name)
    if without_effect:
        log.warning("these options have no effect here: %s", ", ".join(without_effect))
