"""``trio-broker cluster join`` and ``leave``: the metadata of a broker that is stopped, into etcd and back.

The settings are those of ``start``: where etcd is, and how it is logged in to, may stand in the same file, in variables
of the environment or on the command line.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import fail
from trio_broker.cli.output import note, print_facts
from trio_broker.cli.start import (
    option_variables,
    parse_overrides,
    read_settings_file,
    refuse_unknown_overrides,
    start_option,
)

if TYPE_CHECKING:
    from trio_broker.cluster.etcd.handover import Departure, Joined
    from trio_broker.config.broker_config import BrokerConfig
    from trio_broker.runtime.runtime import Runtime


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options by which ``start`` has its settings, and these as its first argument."""

    @click.argument("store", required=False, metavar="[etcd://HOST:PORT,…]")
    @start_option("--config", "config_file", type=click.Path(path_type=Path), help="A server.properties file.")
    @click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one key; may be repeated.")
    @start_option("--data-dir", type=click.Path(path_type=Path), help="The directory of the metadata (log.dirs).")
    @functools.wraps(command)
    def run(
        *arguments: Any,
        store: str | None,
        config_file: Path | None,
        overrides: tuple[str, ...],
        data_dir: Path | None,
        **options: Any,
    ) -> None:
        from trio_broker.config.errors import ConfigError

        try:
            config = settings_of(store, config_file, overrides, data_dir)
        except ConfigError as error:
            fail(str(error))
        command(config, *arguments, **options)

    return run


def settings_of(
    store: str | None, config_file: Path | None, overrides: tuple[str, ...], data_dir: Path | None
) -> BrokerConfig:
    """Return the settings, in which ``store`` and ``data_dir`` stand for keys.

    Raises:
        ConfigError: one is not valid.
    """
    from trio_broker.config.broker_config import broker_config_of
    from trio_broker.config.static_settings import gather_settings

    given = {"metadata.store": store, "log.dirs": None if data_dir is None else str(data_dir)}
    settings = gather_settings(
        None if config_file is None else read_settings_file(config_file),
        {**parse_overrides(overrides), **{key: value for key, value in given.items() if value is not None}},
        os.environ,
        option_variables(),
    )
    refuse_unknown_overrides(settings)
    return broker_config_of(settings)


@click.command("join")
@click.option(
    "--restore",
    is_flag=True,
    help="Bring the copy that a broker of a cluster has, where etcd has lost the metadata. What was decided behind its"
    " end is lost: bring the one that ends last.",
)
@with_settings
def join_command(config: BrokerConfig, *, restore: bool) -> None:
    """Move the metadata of a stopped broker into etcd, where other brokers share them.

    Topics, groups, offsets and ids stay what they are. The prefix in etcd has to be empty. A command that was cut short
    is repeated.
    """
    from trio_broker.cluster.etcd.handover import move_into_etcd
    from trio_broker.cluster.etcd.opening import opened_store
    from trio_broker.cluster.etcd.snapshots import MAX_STORED_BYTES
    from trio_broker.config.metadata_store_config import LOCAL

    store, path = config.metadata_store.metadata_store, PurePath(config.node.log_dirs[0])
    if store == LOCAL:
        raise click.UsageError("name the store: etcd://HOST:PORT,…/PREFIX")

    def join(runtime: Runtime) -> Awaitable[Joined | None]:
        open_store = functools.partial(opened_store, config.metadata_store, runtime)
        return move_into_etcd(path, runtime, open_store, restores=restore)

    joined = carried_out(join)
    if joined is None:
        click.echo(f"{path} has no metadata: its first start with metadata.store makes the cluster or joins it")
        return
    were = "were there already" if joined.were_there else "are in etcd now"
    click.echo(
        f"the metadata of cluster {joined.cluster_id} {were}, up to offset {joined.end_offset}:"
        f" {joined.stored_bytes} bytes, of {MAX_STORED_BYTES} that etcd is given"
    )
    click.echo(f"start each broker with metadata.store={store}")


@click.command("leave")
@needs_consent
@with_settings
def leave_command(config: BrokerConfig, consent: Consent) -> None:
    """Make the cluster's metadata those of one stopped broker alone, and delete them in etcd.

    All brokers have to be stopped, and the one that leaves has to have all that is committed, as the one that was
    stopped last has. The other brokers are no part of it any more. Where etcd itself is lost, name no store: then the
    copy in the data directory counts.
    """
    from trio_broker.cluster.etcd.handover import move_out_of_etcd
    from trio_broker.cluster.etcd.opening import opened_store
    from trio_broker.config.metadata_store_config import LOCAL

    def agree(departure: Departure) -> bool:
        show(departure)
        return is_agreed(consent, "Leave for good?")

    def leave(runtime: Runtime) -> Awaitable[Departure]:
        is_lost = config.metadata_store.metadata_store == LOCAL
        open_store = None if is_lost else functools.partial(opened_store, config.metadata_store, runtime)
        return move_out_of_etcd(path, runtime, open_store, agree)

    path = PurePath(config.node.log_dirs[0])
    departure = carried_out(leave)
    if consent is not Consent.DRY_RUN:
        click.echo(f"{path} has metadata of its own: start broker {departure.node_id} without metadata.store")


def show(departure: Departure) -> None:
    """Show what a departure means, before it is agreed to."""
    print_facts(
        {
            "cluster": departure.cluster_id,
            "broker": departure.node_id,
            "topics": departure.topics,
            "offset": departure.end_offset,
            "other brokers": departure.other_brokers,
            "partitions with other replicas": departure.replicated,
        }
    )
    if not departure.is_end_known:
        note("etcd is not asked: what was decided behind that offset is lost")
    if not departure.is_clean:
        note("the broker was not stopped cleanly: what it has not written to its disk is lost")


def carried_out(work: Callable[[Any], Any]) -> Any:
    """Return what ``work`` does, which takes a runtime; end the command where it is refused."""
    import trio

    from trio_broker.cluster.kafka_handover import UNREADABLE, HandoverRefused
    from trio_broker.runtime.real import real_runtime

    try:
        return trio.run(work, real_runtime())
    except (HandoverRefused, *UNREADABLE) as error:
        fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}")
