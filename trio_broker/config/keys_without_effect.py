"""Kafka's keys that have no effect here: those of parts that this broker has not, such as remote storage.

They are taken and kept, because files and tools that are made for Kafka set them and one refused key would refuse all
others beside it. They are described only where they are set, and marked as without effect. Their values are checked by
type alone. A secret among them is never shown, as any other.

Source: the definitions of Kafka 4.4 (KafkaConfig, DynamicBrokerConfig, GroupConfig), with which a test compares them;
docs/decisions/0072-keys-without-effect-are-taken.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trio_broker.config.config_key import ConfigKey, ConfigType, UpdateMode

WITHOUT_EFFECT = "Of Kafka; without effect here."

Names = Mapping[tuple[ConfigType, UpdateMode], str]

_BROKER_NAMES: Names = {
    (ConfigType.BOOLEAN, UpdateMode.CLUSTER_WIDE): """
        errors.deadletterqueue.auto.create.topics.enable
        follower.fetch.last.tiered.offset.enable
        transaction.partition.verification.enable
    """,
    (ConfigType.BOOLEAN, UpdateMode.READ_ONLY): """
        controlled.shutdown.enable
        controller.quorum.auto.join.enable
        remote.log.storage.system.enable
        sasl.oauthbearer.allow.unverified.audience
        sasl.oauthbearer.allow.unverified.issuer
        sasl.oauthbearer.assertion.claim.jti.include
        ssl.allow.dn.changes
        ssl.allow.san.changes
        transaction.two.phase.commit.enable
    """,
    (ConfigType.CLASS, UpdateMode.PER_BROKER): """
        principal.builder.class
        ssl.engine.factory.class
    """,
    (ConfigType.CLASS, UpdateMode.READ_ONLY): """
        alter.config.policy.class.name
        client.quota.callback.class
        create.topic.policy.class.name
        group.streams.topology.description.plugin.class
        sasl.client.callback.handler.class
        sasl.login.callback.handler.class
        sasl.login.class
        sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.jwt.validator.class
        sasl.server.callback.handler.class
    """,
    (ConfigType.DOUBLE, UpdateMode.PER_BROKER): """
        sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
        sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter
    """,
    (ConfigType.INT, UpdateMode.CLUSTER_WIDE): """
        background.threads
        group.coordinator.cached.buffer.max.bytes
        group.share.assignment.interval.ms
        group.streams.assignment.interval.ms
        remote.fetch.max.wait.ms
        remote.log.manager.copier.thread.pool.size
        remote.log.manager.expiration.thread.pool.size
        remote.log.manager.follower.thread.pool.size
        remote.log.reader.threads
        share.coordinator.cached.buffer.max.bytes
    """,
    (ConfigType.INT, UpdateMode.READ_ONLY): """
        add.partitions.to.txn.retry.backoff.max.ms
        add.partitions.to.txn.retry.backoff.ms
        alter.log.dirs.replication.quota.window.num
        alter.log.dirs.replication.quota.window.size.seconds
        controller.quorum.append.linger.ms
        controller.quorum.election.backoff.max.ms
        controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes
        controller.quorum.fetch.snapshot.max.bytes
        controller.quorum.fetch.timeout.ms
        controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms
        controller.socket.timeout.ms
        delete.records.purgatory.purge.interval.requests
        fetch.purgatory.purge.interval.requests
        group.coordinator.append.linger.ms
        group.coordinator.background.threads
        group.coordinator.threads
        group.share.delivery.count.limit
        group.share.heartbeat.interval.ms
        group.share.max.assignment.interval.ms
        group.share.max.delivery.count.limit
        group.share.max.heartbeat.interval.ms
        group.share.max.partition.max.record.locks
        group.share.max.record.lock.duration.ms
        group.share.max.session.timeout.ms
        group.share.max.share.sessions
        group.share.max.size
        group.share.min.assignment.interval.ms
        group.share.min.delivery.count.limit
        group.share.min.heartbeat.interval.ms
        group.share.min.partition.max.record.locks
        group.share.min.record.lock.duration.ms
        group.share.min.session.timeout.ms
        group.share.partition.max.record.locks
        group.share.record.lock.duration.ms
        group.share.session.timeout.ms
        group.streams.heartbeat.interval.ms
        group.streams.initial.rebalance.delay.ms
        group.streams.max.assignment.interval.ms
        group.streams.max.heartbeat.interval.ms
        group.streams.max.session.timeout.ms
        group.streams.max.size
        group.streams.max.standby.replicas
        group.streams.min.assignment.interval.ms
        group.streams.min.heartbeat.interval.ms
        group.streams.min.session.timeout.ms
        group.streams.num.standby.replicas
        group.streams.session.timeout.ms
        kafka.metrics.polling.interval.secs
        log.flush.start.offset.checkpoint.interval.ms
        metadata.log.segment.bytes
        metadata.max.idle.interval.ms
        metrics.num.samples
        num.replica.alter.log.dirs.threads
        offsets.load.buffer.size
        offsets.topic.compression.codec
        producer.purgatory.purge.interval.requests
        remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes
        remote.log.reader.max.pending.tasks
        replica.socket.receive.buffer.bytes
        request.timeout.ms
        sasl.login.connect.timeout.ms
        sasl.login.read.timeout.ms
        sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.nbf.seconds
        share.coordinator.append.linger.ms
        share.coordinator.load.buffer.size
        share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec
        share.coordinator.state.topic.num.partitions
        share.coordinator.state.topic.segment.bytes
        share.coordinator.threads
        share.coordinator.write.timeout.ms
        share.fetch.purgatory.purge.interval.requests
        telemetry.max.bytes
        transaction.abort.timed.out.transaction.cleanup.interval.ms
        transaction.remove.expired.transaction.cleanup.interval.ms
        transaction.state.log.load.buffer.size
    """,
    (ConfigType.LIST, UpdateMode.CLUSTER_WIDE): """
        config.providers
        metric.reporters
    """,
    (ConfigType.LIST, UpdateMode.PER_BROKER): """
        cordoned.log.dirs
        sasl.kerberos.principal.to.local.rules
    """,
    (ConfigType.LIST, UpdateMode.READ_ONLY): """
        controller.quorum.bootstrap.servers
        controller.quorum.voters
        early.start.listeners
        group.share.assignors
        group.streams.assignors
        group.streams.rack.aware.assignment.tags
        kafka.metrics.reporters
        process.roles
    """,
    (ConfigType.LONG, UpdateMode.CLUSTER_WIDE): """
        remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.fetch.max.bytes.per.second
    """,
    (ConfigType.LONG, UpdateMode.PER_BROKER): """
        sasl.kerberos.min.time.before.relogin
    """,
    (ConfigType.LONG, UpdateMode.READ_ONLY): """
        log.dir.failure.timeout.ms
        metadata.log.max.record.bytes.between.snapshots
        metadata.log.max.snapshot.interval.ms
        metadata.log.segment.ms
        metadata.max.retention.bytes
        metadata.max.retention.ms
        metrics.sample.window.ms
        remote.log.manager.task.interval.ms
        sasl.login.retry.backoff.max.ms
        sasl.login.retry.backoff.ms
        socket.connection.setup.timeout.max.ms
        socket.connection.setup.timeout.ms
    """,
    (ConfigType.PASSWORD, UpdateMode.READ_ONLY): """
        sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.client.credentials.client.secret
    """,
    (ConfigType.SHORT, UpdateMode.PER_BROKER): """
        sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds
    """,
    (ConfigType.SHORT, UpdateMode.READ_ONLY): """
        share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.replication.factor
    """,
    (ConfigType.STRING, UpdateMode.CLUSTER_WIDE): """
        errors.deadletterqueue.topic.name.prefix
    """,
    (ConfigType.STRING, UpdateMode.PER_BROKER): """
        sasl.kerberos.kinit.cmd
        sasl.kerberos.service.name
        ssl.keymanager.algorithm
        ssl.protocol
        ssl.provider
        ssl.secure.random.implementation
        ssl.trustmanager.algorithm
    """,
    (ConfigType.STRING, UpdateMode.READ_ONLY): """
        metadata.log.dir
        metrics.recording.level
        remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name
        remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix
        sasl.mechanism.controller.protocol
        sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.scope
        sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.token.endpoint.url
        security.providers
    """,
}

_INTERNAL_BROKER_NAMES: Names = {
    (ConfigType.BOOLEAN, UpdateMode.CLUSTER_WIDE): """
        group.consumer.assignor.offload.enable
        group.share.assignor.offload.enable
        group.streams.assignor.offload.enable
    """,
    (ConfigType.BOOLEAN, UpdateMode.READ_ONLY): """
        unstable.api.versions.enable
        unstable.feature.versions.enable
    """,
    (ConfigType.DOUBLE, UpdateMode.READ_ONLY): """
        remote.log.manager.task.retry.jitter
    """,
    (ConfigType.INT, UpdateMode.READ_ONLY): """
        group.share.initialize.retry.interval.ms
        group.streams.max.warmup.replicas
        group.streams.min.task.offset.interval.ms
        group.streams.num.warmup.replicas
        group.streams.task.offset.interval.ms
        internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes
        producer.id.expiration.check.interval.ms
        share.coordinator.cold.partition.snapshot.interval.ms
        share.coordinator.state.topic.prune.interval.ms
    """,
    (ConfigType.LONG, UpdateMode.READ_ONLY): """
        controller.performance.always.log.threshold.ms
        controller.performance.sample.period.ms
        group.streams.acceptable.recovery.lag
        internal.metadata.delete.delay.millis
        remote.log.index.file.cache.ttl.ms
        remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms
        server.max.startup.time.ms
        unclean.leader.election.interval.ms
    """,
    (ConfigType.STRING, UpdateMode.READ_ONLY): """
        group.share.dlq.manager.class.name
        group.share.persister.class.name
    """,
}
"""Kafka takes them too and does not describe them."""

_GROUP_NAMES: Names = {
    (ConfigType.BOOLEAN, UpdateMode.CLUSTER_WIDE): """
        errors.deadletterqueue.copy.record.enable
        share.renew.acknowledge.enable
    """,
    (ConfigType.INT, UpdateMode.CLUSTER_WIDE): """
        share.assignment.interval.ms
        share.delivery.count.limit
        share.heartbeat.interval.ms
        share.partition.max.record.locks
        share.record.lock.duration.ms
        share.session.timeout.ms
        streams.assignment.interval.ms
        streams.heartbeat.interval.ms
        streams.initial.rebalance.delay.ms
        streams.num.standby.replicas
        streams.session.timeout.ms
    """,
    (ConfigType.LIST, UpdateMode.CLUSTER_WIDE): """
        streams.rack.aware.assignment.tags
    """,
    (ConfigType.STRING, UpdateMode.CLUSTER_WIDE): """
        errors.deadletterqueue.topic.name
        share.auto.offset.reset
        share.isolation.level
        streams.assignor.name
    """,
}
"""The keys of share and streams groups."""

_INTERNAL_GROUP_NAMES: Names = {
    (ConfigType.BOOLEAN, UpdateMode.CLUSTER_WIDE): """
        consumer.assignor.offload.enable
        share.assignor.offload.enable
        streams.assignor.offload.enable
    """,
    (ConfigType.INT, UpdateMode.CLUSTER_WIDE): """
        streams.num.warmup.replicas
        streams.task.offset.interval.ms
    """,
    (ConfigType.LONG, UpdateMode.CLUSTER_WIDE): """
        streams.acceptable.recovery.lag
    """,
}


def _keys(names: Names, *, internal: bool) -> Iterator[ConfigKey]:
    for (config_type, update_mode), listed in names.items():
        for name in listed.split():
            yield ConfigKey(
                name=name,
                type=config_type,
                default=None,
                documentation=WITHOUT_EFFECT,
                update_mode=update_mode,
                sensitive=config_type is ConfigType.PASSWORD,
                internal=internal,
                without_effect=True,
            )


BROKER_KEYS_WITHOUT_EFFECT = (
    *_keys(_BROKER_NAMES, internal=False),
    *_keys(_INTERNAL_BROKER_NAMES, internal=True),
)

GROUP_KEYS_WITHOUT_EFFECT = (
    *_keys(_GROUP_NAMES, internal=False),
    *_keys(_INTERNAL_GROUP_NAMES, internal=True),
)
