"""``trio-broker start``: reads the configuration and runs the broker.

An error before the broker serves (a bad key, a port in use, a data directory that is locked or belongs to another
broker) ends the command with one line. A key that this broker does not have is an error on the command line, where it
is a misspelling, and a warning in a file, which may be written for Kafka.

The exit code is 0 only after a clean stop: not when a second signal cut the stop short, nor when a disk has failed.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from click.core import ParameterSource

from trio_broker.cli.declarations import GivenTexts, read_declarations
from trio_broker.cli.log_output import LogFormat, set_up_logging
from trio_broker.cli.output import let_everything_be_printed
from trio_broker.common.environment import environment_name, is_of_service
from trio_broker.common.escaping import escape_control
from trio_broker.common.host_port import DEFAULT_PORT, host_port
from trio_broker.declaration.declaration import Declaration, DeclarationError, require_once
from trio_broker.declaration.plan import difference_lines

if TYPE_CHECKING:
    from trio_broker.cli.secure_directory import SecureDirectory
    from trio_broker.config.broker_config import BrokerConfig
    from trio_broker.config.static_settings import SettingsFile, StaticSettings

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

log = logging.getLogger(__name__)

DEFAULT_HOST = "127.0.0.1"
DEFAULT_ADMIN_PORT = 9644

BESIDE_DATA = ""
"""As the directory of ``--secure``: the one that is named after the data directory."""

OPTIONS_FOR_KEYS = ("data_dir", "host", "port", "admin_host", "admin_port")


class StartOption(click.Option):
    """An option that does not take a variable for its own that Kubernetes has made of a service."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        return None if value is not None and is_of_service(str(self.envvar), value) else value


def start_option(name: str, *parameter: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """Declare an option that its environment variable sets too: ``--data-dir`` is ``TRIO_BROKER_DATA_DIR``."""
    variable = environment_name(name.removeprefix("--").replace("-", "."))
    return click.option(name, *parameter, cls=StartOption, envvar=variable, show_envvar=True, **attributes)


class StartCommand(click.Command):
    """Writes a wrong option as a line of the log too, once ``--log-format`` is known."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if ctx.params.get("log_format") != LogFormat.JSON.value:
                raise
            set_up_logging(LogFormat.JSON, "INFO")
            LogFormat.JSON.print_error(error.format_message())
            ctx.exit(error.exit_code)


@click.command(cls=StartCommand)
@start_option(
    "--config", "config_file", type=click.Path(path_type=Path), help="A server.properties file in Kafka's format."
)
@start_option(
    "--secure",
    "secure_directory",
    is_flag=False,
    flag_value=BESIDE_DATA,
    metavar="[DIR]",
    help="Serve by TLS, to users with passwords and rights alone. What that takes is made in DIR if it is not there, or"
    " beside the data: certificates, a server.properties, a password of the user admin.",
)
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one key; may be repeated.")
@start_option("--data-dir", type=click.Path(path_type=Path), help="The directory of the logs (log.dirs).")
@start_option("--host", help=f"Address of the Kafka listener, {DEFAULT_HOST} if not given; 0.0.0.0 is every one.")
@start_option("--port", type=click.IntRange(0, 65535), help="Port of the Kafka listener; 0 picks one.")
@start_option("--admin-host", help=f"Address of the admin page, {DEFAULT_HOST} if not given.")
@start_option("--admin-port", type=click.IntRange(0, 65535), help="Port of the admin page; 0 picks one.")
@start_option(
    "--declare",
    "declaration_file",
    type=click.Path(path_type=Path),
    help="A TOML or YAML file of topics and users that have to exist, and of quotas: what is missing is created, added,"
    " and set.",
)
@start_option(
    "--topic",
    "declared_topics",
    multiple=True,
    metavar="NAME[:PARTITIONS[:KEY=VALUE,…]]",
    help="Declare one topic, as orders:12:retention.ms=86400000; may be repeated. An item without an equals sign"
    " belongs to the list before it: orders:12:cleanup.policy=compact,delete,retention.ms=86400000.",
)
@start_option(
    "--add-scram",
    "first_credentials",
    multiple=True,
    metavar="SCRAM-SHA-512=[name=NAME,password-file=FILE]",
    help="Add a user to a cluster that has nothing yet, before clients are served; may be repeated. As Kafka's"
    " kafka-storage.sh it takes password=… as well, which everybody sees who lists the processes of this machine.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be declared and added, and start no broker.")
@start_option(
    "--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"])
)
@start_option(
    "--log-format",
    default=LogFormat.TEXT.value,
    show_default=True,
    type=click.Choice([each.value for each in LogFormat]),
    is_eager=True,
    help="json writes one object a line, the addresses at the start too.",
)
@click.pass_context
def start(
    context: click.Context,
    /,
    config_file: Path | None,
    secure_directory: str | None,
    overrides: tuple[str, ...],
    declaration_file: Path | None,
    declared_topics: tuple[str, ...],
    first_credentials: tuple[str, ...],
    dry_run: bool,
    log_level: str,
    log_format: str,
    **_: Any,
) -> None:
    """Run a broker and its admin page until SIGTERM, SIGINT or SIGHUP.

    Each key has an environment variable as well: num.io.threads is TRIO_BROKER_NUM_IO_THREADS.
    """
    form = LogFormat(log_format)
    set_up_logging(form, log_level)
    options = given_options(context)
    try:
        secured = None
        if secure_directory is not None:
            secured = made_secure(secure_directory, config_file, overrides, options, form, may_make=not dry_run)
            config_file = secured.server_properties
        config = configured(config_file, overrides, options, form, secured)
        declaration = read_declarations(
            declaration_file,
            GivenTexts(declared_topics, origin_of(context, "declared_topics")),
            GivenTexts(first_credentials, origin_of(context, "first_credentials")),
        )
        if secured is not None:
            declaration = with_admin(declaration, secured, form)
            if not dry_run:
                renew_certificate(secured, config, form)
        if dry_run:
            preview(config, declaration, form)
        else:
            run(config, declaration, form)
    except DeclarationError as error:
        form.fail(*error.reasons)


# Functions import what they need: ``trio-broker --help`` and completion need no broker, nor does a mistake in the
# configuration, which is reported before the broker is loaded, the longest part of a start.


def option_variables() -> list[str]:
    """The environment variables of the options of ``start``."""
    return [str(option.envvar) for option in start.params if isinstance(option, StartOption)]


@attrs.frozen
class GivenOption:
    """The value of an option, and what gives it: the option itself, or its environment variable."""

    value: Any
    name: str
    is_variable: bool


def given_options(context: click.Context) -> dict[str, GivenOption]:
    """Return the options that stand for keys and that are given, by the name of their parameter."""
    given: dict[str, GivenOption] = {}
    for option in context.command.params:
        name, value = str(option.name), context.params.get(str(option.name))
        if name in OPTIONS_FOR_KEYS and value is not None:
            given[name] = GivenOption(value, origin_of(context, name), is_from_variable(context, name))
    return given


def origin_of(context: click.Context, parameter: str) -> str:
    """Return what gives an option its value, for messages: the option, or its environment variable."""
    option = next(each for each in context.command.params if each.name == parameter)
    return str(option.envvar) if is_from_variable(context, parameter) else option.opts[0]


def is_from_variable(context: click.Context, parameter: str) -> bool:
    return context.get_parameter_source(parameter) is ParameterSource.ENVIRONMENT


def made_secure(
    directory: str,
    config_file: Path | None,
    overrides: tuple[str, ...],
    options: Mapping[str, GivenOption],
    form: LogFormat,
    *,
    may_make: bool,
) -> SecureDirectory:
    """Return the directory of ``--secure``, which is made if it is not there; end the command where it cannot be."""
    import os

    from trio_broker.cli.secure_directory import SecureDirectory, SecureSettings
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.node_config import DEFAULT_LOG_DIRECTORY
    from trio_broker.config.static_settings import gather_settings

    try:
        if config_file is not None:
            raise ConfigError("--secure and --config exclude each other: what --secure makes is such a file")
        settings = gather_settings(None, parse_overrides(overrides), os.environ, option_variables())
        if (listeners := settings.effective.get("listeners")) is not None:
            reason = "name --host and --port, or change listeners in its server.properties"
            raise ConfigError(f"--secure and listeners ({listeners.origin}) exclude each other: {reason}")
        apply_options(settings, {name: each for name, each in options.items() if name not in ("host", "port")})
        texts = {key: each.text for key, each in settings.effective.items()}
        log_dirs = texts.get("log.dirs", DEFAULT_LOG_DIRECTORY)
        secured = SecureDirectory(Path(directory or f"{log_dirs.split(',')[0].rstrip('/')}-secure").absolute())
        if not may_make and not secured.server_properties.exists():
            raise ConfigError(f"--secure: {secured.path} is not there, and --dry-run makes nothing")
        password = secured.make(
            SecureSettings(
                log_dirs=",".join(str(Path(each.strip()).absolute()) for each in log_dirs.split(",")),
                listener=f"SASL_SSL://{address(options, 'host', 'port', DEFAULT_PORT)}",
                admin_listener=texts.get("admin.listener", host_port(DEFAULT_HOST, DEFAULT_ADMIN_PORT)),
            )
        )
    except ConfigError as error:
        form.fail(str(error))
    if password is not None:
        log.info("--secure: %s was made; the password of admin is in %s", secured.path, secured.admin_properties)
        show_once(f"password   {password}  for the user admin, shown once", form)
    return secured


def show_once(line: str, form: LogFormat) -> None:
    """Print a secret if somebody looks at it: what is no terminal may be a log."""
    if form is LogFormat.TEXT and is_terminal():
        click.echo(line)


def is_terminal() -> bool:
    """Whether somebody looks at standard output."""
    return sys.stdout.isatty()


def with_admin(declaration: Declaration, secured: SecureDirectory, form: LogFormat) -> Declaration:
    """Add the user admin to what a new cluster gets; end the command where its file is none."""
    from trio_broker.config.errors import ConfigError

    try:
        credential = secured.first_credential()
    except ConfigError as error:
        form.fail(str(error))
    if credential is None:
        return declaration
    return require_once(attrs.evolve(declaration, first_credentials=(*declaration.first_credentials, credential)))


def renew_certificate(secured: SecureDirectory, config: BrokerConfig, form: LogFormat) -> None:
    """See to it that the certificate is valid, and names all that clients dial; end the command where it cannot be."""
    from datetime import UTC, datetime

    from trio_broker.config.errors import ConfigError
    from trio_broker.config.listeners import advertised_endpoints, listener_endpoints

    try:
        endpoints = (*listener_endpoints(config.socket_server), *advertised_endpoints(config.socket_server))
        said = secured.renew([*(each.host for each in endpoints), *config.node.admin_allowed_hosts], datetime.now(UTC))
    except ConfigError as error:
        form.fail(str(error))
    if said:
        log.info("--secure: %s", said)


def configured(
    config_file: Path | None,
    overrides: tuple[str, ...],
    options: Mapping[str, GivenOption],
    form: LogFormat,
    secured: SecureDirectory | None = None,
) -> BrokerConfig:
    """Return the configuration; end the command where something is wrong with it, or it is not safe and ``secured``
    has to be."""
    import os

    from trio_broker.config.broker_config import broker_config_of
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.static_settings import gather_settings

    try:
        file = None if config_file is None else read_settings_file(config_file)
        settings = gather_settings(file, parse_overrides(overrides), os.environ, option_variables())
        refuse_unknown_overrides(settings)
        apply_options(settings, options, "PLAINTEXT" if secured is None else "SASL_SSL")
        config = broker_config_of(settings)
        if secured is not None:
            secured.check(config)
        return config
    except ConfigError as error:
        form.fail(str(error))


def preview(config: BrokerConfig, declaration: Declaration, form: LogFormat) -> None:
    """Print what a start would change; end the command where the metadata cannot be read."""
    import trio

    from kafka_wire.errors import KafkaError, WireError
    from trio_broker.cluster.declaration_preview import preview_declaration
    from trio_broker.runtime.real import real_runtime
    from trio_broker.storage.errors import DataDirectoryError

    try:
        plans = trio.run(preview_declaration, declaration, config, real_runtime())
    except (DataDirectoryError, KafkaError, WireError, OSError) as error:
        form.fail(str(error))
    let_everything_be_printed()
    for line in difference_lines(plans):
        click.echo(escape_control(line))


def run(config: BrokerConfig, declaration: Declaration, form: LogFormat) -> None:
    """Run the broker until a signal; end the command where it cannot start, or does not stop cleanly."""
    import gc

    gc.disable()  # modules leave no garbage, and searching what they make takes a fifth of the time of the imports
    from trio_broker.broker import StartupError, UncleanStop, run_until_signalled
    from trio_broker.config.errors import ConfigError
    from trio_broker.runtime.memory import bound_kept_memory

    gc.enable()
    for warning in (*config.warnings, *config.without_effect):
        log.warning("%s", warning)
    bound_kept_memory()
    try:
        run_until_signalled(config, announce=form.announce, declaration=declaration)
    except StartupError as error:
        form.fail(*error.reasons)
    except (ConfigError, UncleanStop) as error:
        form.fail(str(error))


def read_settings_file(path: Path) -> SettingsFile:
    """Read a properties file, or a pipe.

    Raises:
        ConfigError: it cannot be read.
    """
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.static_settings import SettingsFile

    try:
        return SettingsFile(str(path), path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def parse_overrides(overrides: tuple[str, ...]) -> dict[str, str]:
    """Return the keys and values of ``--override``.

    Raises:
        ConfigError: one is not of the form KEY=VALUE.
    """
    from trio_broker.config.errors import ConfigError

    settings: dict[str, str] = {}
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--override takes KEY=VALUE, not {override!r}")
        settings[key.strip()] = value.strip()
    return settings


def refuse_unknown_overrides(settings: StaticSettings) -> None:
    """Raise ``ConfigError`` for a key of the command line that this broker does not have."""
    from trio_broker.config.entries import ConfigLevel
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.keys import BROKER_KEYS

    for key in settings.levels[ConfigLevel.COMMAND_LINE]:
        if key not in BROKER_KEYS:
            raise ConfigError(f"--override {key}: this broker has no such key{BROKER_KEYS.hint(key)}")


def apply_options(settings: StaticSettings, options: Mapping[str, GivenOption], protocol: str = "PLAINTEXT") -> None:
    """Set the keys for which options stand, at the level of the command line or of the environment.

    Raises:
        ConfigError: ``listeners`` is given too. ``--host`` and ``--port`` stand for a plaintext listener, which must
            not silently replace one that was configured with TLS; one with another ``protocol`` may. Or a variable of
            an option and that of its key are.
    """
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.static_settings import COMMAND_LINE

    listening = [options[name] for name in ("host", "port") if name in options]
    if listening and protocol == "PLAINTEXT" and (listeners := settings.effective.get("listeners")) is not None:
        where = "--override" if listeners.origin == COMMAND_LINE else listeners.origin
        name = listening[-1].name
        raise ConfigError(f"{name} and listeners ({where}) exclude each other: name host and port in listeners")
    if "data_dir" in options:
        set_by_options(settings, "log.dirs", str(options["data_dir"].value), [options["data_dir"]])
    if listening:
        listener = address(options, "host", "port", DEFAULT_PORT)
        set_by_options(settings, "listeners", f"{protocol}://{listener}", listening)
    if admin := [options[name] for name in ("admin_host", "admin_port") if name in options]:
        listener = address(options, "admin_host", "admin_port", DEFAULT_ADMIN_PORT)
        set_by_options(settings, "admin.listener", listener, admin)


def address(options: Mapping[str, GivenOption], host: str, port: str, default_port: int) -> str:
    """Return ``host:port`` of two options, either of which may be missing."""
    text = options[host].value if host in options else DEFAULT_HOST
    number = options[port].value if port in options else default_port
    return host_port(text, number)


def set_by_options(settings: StaticSettings, key: str, text: str, options: Sequence[GivenOption]) -> None:
    """Set a key by options: at the level of the environment if variables give all of them.

    Raises:
        ConfigError: the environment has a variable of the key as well.
    """
    from trio_broker.config.entries import ConfigLevel
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.static_settings import COMMAND_LINE, origin_of

    if not all(option.is_variable for option in options):
        settings.set(key, text, COMMAND_LINE)
        return
    if (other := settings.levels[ConfigLevel.ENVIRONMENT].get(key)) is not None:
        raise ConfigError(f"{options[0].name} and {key} ({other.origin}) exclude each other")
    settings.set(key, text, origin_of(" and ".join(option.name for option in options)), ConfigLevel.ENVIRONMENT)
