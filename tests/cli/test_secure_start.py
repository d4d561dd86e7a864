"""``start --secure``: what it makes, what it finds at the next start, and that a broker is safe by it."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from kafka_wire.sasl.scram import ScramMechanism
from trio_broker import broker as broker_module
from trio_broker.broker import Broker
from trio_broker.cli import main
from trio_broker.cli.secure_directory import SecureDirectory, SecureSettings, certificate_in, names_in, own_name
from trio_broker.cluster.scram_control import find_credential
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.declaration.credential_plan import is_kept
from trio_broker.declaration.declaration import Declaration
from trio_broker.security.certificate_authority import CertificateAuthority

Start = Callable[..., tuple[Result, list[tuple[BrokerConfig, Declaration]]]]
NOW = datetime.now(UTC)
SETTINGS = SecureSettings("/data", "SASL_SSL://127.0.0.1:9092", "127.0.0.1:9644")


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Runs ``start --secure`` on ``data``, and returns with what a broker would run."""

    def start(*arguments: str, **environment: str) -> tuple[Result, list[tuple[BrokerConfig, Declaration]]]:
        runs: list[tuple[BrokerConfig, Declaration]] = []

        def run(config: BrokerConfig, *, declaration: Declaration, announce: object) -> None:
            runs.append((config, declaration))

        monkeypatch.setattr(broker_module, "run_until_signalled", run)
        given = ["start", "--data-dir", str(tmp_path / "data"), *arguments]
        return CliRunner(env=environment).invoke(main, given), runs

    return start


def names(directory: Path) -> set[str]:
    return names_in(certificate_in((directory / "broker.pem").read_bytes()))


def test_everything_is_made_beside_the_data_and_only_the_authority_may_be_read_by_others(start: Start, tmp_path: Path):
    result, [(config, declaration)] = start("--secure", "--port", "19092")
    made = tmp_path / "data-secure"
    assert result.exit_code == 0, result.output
    assert {each.name: oct(each.stat().st_mode & 0o777) for each in made.iterdir()} == {
        "ca.pem": "0o644",
        **dict.fromkeys(("ca-key.pem", "broker.pem", "admin.properties", "server.properties", ".lock"), "0o600"),
    }
    assert config.socket_server.listeners == ("SASL_SSL://127.0.0.1:19092",)
    assert config.sasl.sasl_enabled_mechanisms == ("SCRAM-SHA-512",)
    assert config.authorizer.authorizer_class_name.endswith("StandardAuthorizer")
    assert config.authorizer.super_users == "User:admin"
    assert not config.authorizer.allow_everyone_if_no_acl_found
    assert (config.node.admin_security_protocol, config.node.admin_token_file) == ("SSL", str(made / "admin-tokens"))
    assert names(made) >= {"localhost", "127.0.0.1", "::1"}
    [credential] = declaration.first_credentials
    assert credential.password not in result.output


def test_a_second_start_finds_what_the_first_made(start: Start, tmp_path: Path):
    _, [(_, first)] = start("--secure", "--port", "19092")
    made = tmp_path / "data-secure"
    before = {each: each.read_bytes() for each in made.iterdir()}
    result, [(config, second)] = start("--secure", "--port", "19093")
    assert {each: each.read_bytes() for each in made.iterdir()} == before
    assert first == second
    assert config.socket_server.listeners == ("SASL_SSL://127.0.0.1:19093",)
    assert result.output == ""


def test_the_password_is_shown_once_and_on_a_terminal_alone(start: Start, tmp_path: Path, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    shown = []
    for is_terminal, *options in (
        (True, "--secure"),
        (True, "--secure"),
        (False, "--secure", str(tmp_path / "file")),
        (True, "--secure", str(tmp_path / "json"), "--log-format", "json"),
    ):
        monkeypatch.setattr("trio_broker.cli.start.is_terminal", lambda is_terminal=is_terminal: is_terminal)
        result, [(_, declaration)] = start(*options)
        [credential] = declaration.first_credentials
        shown.append(credential.password in result.stdout)
        assert credential.password not in caplog.text + result.stderr
    assert shown == [True, False, False, False]


def test_a_password_that_was_taken_away_is_not_made_again(start: Start, tmp_path: Path):
    start("--secure")
    (tmp_path / "data-secure" / "admin.properties").unlink()
    _, [(_, declaration)] = start("--secure")
    assert declaration == Declaration()
    assert not (tmp_path / "data-secure" / "admin.properties").exists()


def test_a_certificate_is_issued_again_in_time_and_for_further_names(start: Start, tmp_path: Path):
    made = SecureDirectory(tmp_path / "made")
    made.make(SETTINGS)
    assert "is issued until" in made.renew([], NOW)
    first = (made.path / "broker.pem").read_bytes()
    assert made.renew(["127.0.0.1", "0.0.0.0", ""], NOW) == ""
    assert "does not name kafka.example" in made.renew(["kafka.example"], NOW)
    assert names(made.path) >= {"kafka.example", "localhost"}
    end = certificate_in((made.path / "broker.pem").read_bytes()).not_valid_after_utc
    assert made.renew(["kafka.example"], end - timedelta(days=31)) == ""
    assert "since the one before ends on" in made.renew(["kafka.example"], end - timedelta(days=29))
    assert (made.path / "broker.pem").read_bytes() != first
    (made.path / "ca-key.pem").unlink()
    assert "ca-key.pem is not there to issue another one" in made.renew(["another.example"], NOW)


def test_the_end_of_the_authority_itself_is_said(tmp_path: Path):
    made = SecureDirectory(tmp_path / "made")
    made.make(SETTINGS)
    made.renew([], NOW)
    end = certificate_in((made.path / "ca.pem").read_bytes()).not_valid_after_utc
    assert made.renew([], end - timedelta(days=3)).endswith("ca.pem ends, and clients need another one")


def test_an_authority_that_was_taken_away_is_followed_by_another_one(tmp_path: Path):
    made = SecureDirectory(tmp_path / "made")
    made.make(SETTINGS)
    made.renew([], NOW)
    for name in ("ca.pem", "ca-key.pem"):
        (made.path / name).unlink()
    assert "since the one before is of another authority" in made.renew([], NOW)
    assert made.renew([], NOW) == ""


def test_a_certificate_of_the_authority_that_is_lost_is_made_again_and_a_broken_one_is_refused(tmp_path: Path):
    made = SecureDirectory(tmp_path / "made")
    made.make(SETTINGS)
    made.renew([], NOW)
    certificate, key = (made.path / name for name in ("ca.pem", "ca-key.pem"))
    before = certificate.read_bytes()
    certificate.unlink()
    assert made.renew([], NOW) == ""
    assert (certificate.read_bytes(), certificate.stat().st_mode & 0o777) == (before, 0o644)
    certificate.write_bytes(b"")
    with pytest.raises(ConfigError, match=f"{certificate} has no certificate"):
        made.renew([], NOW)
    key.write_bytes(CertificateAuthority.create("another", NOW).key_store.pem)
    certificate.write_bytes(before)
    with pytest.raises(ConfigError, match="is not that of"):
        made.renew(["another.example"], NOW)


def test_what_was_cut_short_is_finished_with_the_same_password(tmp_path: Path):
    made = SecureDirectory(tmp_path / "made")
    password = made.make(SETTINGS)
    made.server_properties.unlink()
    assert made.make(SETTINGS) == password


def test_of_two_first_starts_at_once_one_makes_everything_and_the_other_says_so(start: Start, tmp_path: Path):
    made = SecureDirectory(tmp_path / "data-secure")
    made.path.mkdir()
    with made.locked():
        result, runs = start("--secure")
        assert (result.exit_code, runs) == (1, [])
        assert f"--secure: another start is making {made.path}" in result.stderr
        assert [each.name for each in made.path.iterdir()] == [".lock"]


def test_of_two_renewals_at_once_one_waits_for_the_other_and_finds_what_it_made(tmp_path: Path, monkeypatch):
    made = SecureDirectory(tmp_path / "made")
    made.make(SETTINGS)
    made.renew([], NOW)
    later = NOW + timedelta(days=800)
    with ExitStack() as other:
        other.enter_context(made.locked())

        def finish_the_other(_: float) -> None:
            made._issue(["localhost", "127.0.0.1", "::1", *own_name()], later)
            other.close()

        monkeypatch.setattr("trio_broker.cli.secure_directory.time.sleep", finish_the_other)
        assert made.renew([], later) == ""
    assert certificate_in((made.path / "broker.pem").read_bytes()).not_valid_before_utc > NOW


def test_a_renewal_waits_no_longer_than_it_says_and_for_nobody_where_nothing_is_to_be_done(tmp_path, monkeypatch):
    monkeypatch.setattr("trio_broker.cli.secure_directory.RENEWAL_SECONDS", 0)
    made = SecureDirectory(tmp_path / "made")
    made.make(SETTINGS)
    with made.locked(), pytest.raises(ConfigError, match="another start is making"):
        made.renew([], NOW)
    assert "is issued until" in made.renew([], NOW)
    with made.locked():
        assert made.renew([], NOW) == ""


def test_two_brokers_of_one_directory_take_no_names_from_each_other(tmp_path: Path):
    made = SecureDirectory(tmp_path / "made")
    made.make(SETTINGS)
    for _ in range(2):
        for host in ("one.example", "two.example"):
            made.renew([host], NOW)
    assert names(made.path) >= {"one.example", "two.example"}
    assert made.renew(["one.example"], NOW) == ""
    # Other names go where the file is removed.
    (made.path / "broker.pem").unlink()
    made.renew(["one.example"], NOW)
    assert "two.example" not in names(made.path)


def test_what_a_killed_start_left_half_written_is_no_other_directory(tmp_path: Path):
    made = SecureDirectory(tmp_path)
    for name in (".server.properties.x1", ".admin.properties.x2", ".ca-key.pem.x3"):
        (tmp_path / name).touch()
    assert made.make(SETTINGS)
    assert "is issued until" in made.renew([], NOW)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"authorizer.class.name": None}, "every client may do everything without authorizer.class.name=org.apache"),
        ({"allow.everyone.if.no.acl.found": "true"}, "every client may do much with allow.everyone"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:9092"}, "the listener SASL_PLAINTEXT://127.0.0.1:9092 has no TLS"),
        ({"admin.security.protocol": None}, "the admin page has no TLS without admin.security.protocol=SSL"),
    ],
)
def test_settings_that_are_not_safe_any_more_are_refused(start: Start, tmp_path: Path, changed, reason):
    start("--secure")
    file = tmp_path / "data-secure" / "server.properties"
    kept = [line for line in file.read_text().splitlines() if line.partition("=")[0] not in changed]
    file.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in changed.items() if value)]))
    for options in ((), ("--dry-run",)):
        result, runs = start("--secure", *options)
        assert (result.exit_code, runs) == (1, [])
        assert f"--secure: {file}: {reason}" in result.stderr
    assert start("--config", str(file))[0].exit_code == 0


def test_a_copy_does_not_become_the_original_and_can_be_made_again_for_its_place(start: Start, tmp_path: Path):
    _, [(_, first)] = start("--secure")
    original, copied = tmp_path / "data-secure", tmp_path / "elsewhere" / "copy"
    shutil.copytree(original, copied)
    result, runs = start("--secure", str(copied))
    assert (result.exit_code, runs) == (1, [])
    assert f"ssl.keystore.location, ssl.truststore.location, admin.token.file lead to {original}" in result.stderr
    for name in ("server.properties", "broker.pem"):
        (copied / name).unlink()
    _, [(config, second)] = start("--secure", str(copied))
    assert config.node.admin_token_file == str(copied / "admin-tokens")
    assert str(copied / "ca.pem") in (copied / "admin.properties").read_text()
    assert [each.password for each in second.first_credentials] == [each.password for each in first.first_credentials]


def test_a_directory_reached_another_way_and_keys_from_elsewhere_are_no_copy(start: Start, tmp_path: Path):
    start("--secure")
    made, linked = tmp_path / "data-secure", tmp_path / "linked"
    linked.symlink_to(made)
    assert start("--secure", str(linked))[0].exit_code == 0
    file = made / "server.properties"
    file.write_text(file.read_text().replace(str(made / "broker.pem"), "/etc/trio-broker/broker.pem"))
    assert start("--secure")[0].exit_code == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--config", "server.properties"), "--secure and --config exclude each other"),
        (("--override", "listeners=PLAINTEXT://:9092"), "--secure and listeners (command line) exclude each other"),
        (("--dry-run",), "is not there, and --dry-run makes nothing"),
    ],
)
def test_a_contradiction_is_refused_before_anything_is_made(start: Start, tmp_path: Path, options, reason):
    result, runs = start("--secure", *options)
    assert (result.exit_code, runs, list(tmp_path.iterdir())) == (1, [], [])
    assert reason in result.stderr


def test_a_directory_of_something_else_is_refused(start: Start, tmp_path: Path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").touch()
    result, _ = start("--secure", str(tmp_path / "home"))
    assert "has no server.properties, but letter.txt: name a new directory" in result.stderr


async def test_a_broker_has_the_user_and_a_certificate_that_clients_trust(start: Start, tmp_path: Path):
    _, [(config, declaration)] = start("--secure", "--port", "0", "--admin-port", "0")
    broker = Broker(config, declaration=declaration)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        [credential] = declaration.first_credentials
        kept = find_credential(broker.services.metadata_cache.image, "admin", ScramMechanism.SHA_512)
        assert kept is not None
        assert is_kept(credential, kept)
        assert broker.services.authorizer is not None
        trusting = ssl.create_default_context(cafile=tmp_path / "data-secure" / "ca.pem")
        port = broker.bound_endpoints[0].port
        stream = await trio.open_ssl_over_tcp_stream("localhost", port, ssl_context=trusting, https_compatible=True)
        await stream.do_handshake()
        await stream.aclose()
        broker.stop()
