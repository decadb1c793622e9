"""TLS and the PROXY protocol on the public listener, over real connections."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.local.authority import Authority, ensure_authority
from orchestrator.edge import accepting
from orchestrator.edge.tls import server_context
from tests.security.listener import UPGRADE, Listener, get, listening, received_until_closed
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

SOON_SECONDS = 0.3
HEADER = b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 443\r\n"
LOOPBACK = ["127.0.0.0/8"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return ensure_authority(tmp_path_factory.mktemp("authority"), "berth.local")


def tls_files(authority: Authority) -> dict[str, Any]:
    """The settings of a listener that speaks TLS."""
    return {
        "public_tls_certificate_file": authority.listener_certificate,
        "public_tls_key_file": authority.listener_key,
    }


@pytest.fixture
def listener(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setattr(accepting, "HANDSHAKE_SECONDS_MAX", SOON_SECONDS)
    with listening(connections_per_source_max=3, **tls_files(authority)) as running:
        yield running


def client_context(authority: Authority) -> ssl.SSLContext:
    """A client that trusts the authority."""
    return ssl.create_default_context(cafile=str(authority.ca_certificate))


def handshake(connection: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """The connection as TLS."""
    return context.wrap_socket(connection, server_hostname="127.0.0.1")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_listener_serves_tls_and_logs_it(listener: Listener, authority: Authority, version: ssl.TLSVersion) -> None:
    context = client_context(authority)
    context.minimum_version = context.maximum_version = version
    with handshake(listener.connect(), context) as connection:
        connection.sendall(get("/", "connection: close"))
        response = received_until_closed(connection)
    assert response.startswith(b"HTTP/1.1 200")
    assert b"strict-transport-security: max-age=31536000\r\n" in response


def test_plain_http_has_no_hsts() -> None:
    with listening() as plain, plain.connect() as connection:
        connection.sendall(get("/", "connection: close"))
        assert b"strict-transport-security" not in received_until_closed(connection)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_older_versions_are_refused(listener: Listener, authority: Authority) -> None:
    context = client_context(authority)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with listener.connect() as connection, pytest.raises(ssl.SSLError):
        handshake(connection, context)
    served = server_context(authority.listener_certificate, authority.listener_key)
    assert served.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
def test_a_handshake_that_does_not_end_ends_the_connection(listener: Listener, sent: bytes) -> None:
    with listener.connect() as connection:
        connection.sendall(sent)
        assert received_until_closed(connection) == b""


def test_handshakes_count_as_connections(authority: Authority) -> None:
    with listening(connections_per_source_max=3, **tls_files(authority)) as listener:
        half_open = [listener.connect() for _ in range(3)]
        with listener.connect() as refused, pytest.raises((ssl.SSLError, OSError)):
            handshake(refused, client_context(authority))
        for connection in half_open:
            connection.close()

        def is_served() -> bool:
            try:
                handshake(listener.connect(), client_context(authority)).close()
            except OSError:
                return False
            return True

        wait_for(is_served, "the connections that ended to be forgotten")


def test_a_new_certificate_serves_the_next_connection(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    later = ensure_authority(tmp_path / "later", "berth.local")
    files = {"certificate": tmp_path / "listener.pem", "key": tmp_path / "listener.key"}

    def install(installed: Authority, *names: str) -> None:
        for name in names:
            part = tmp_path / "part"
            shutil.copy(getattr(installed, f"listener_{name}"), part)
            part.rename(files[name])

    install(authority, "certificate", "key")
    settings: dict[str, Any] = {
        "public_tls_certificate_file": files["certificate"],
        "public_tls_key_file": files["key"],
    }
    with listening(**settings) as listener, handshake(listener.connect(), client_context(authority)) as old:
        install(later, "certificate")
        with handshake(listener.connect(), client_context(authority)) as between:
            between.sendall(get("/", "connection: close"))
            assert received_until_closed(between).startswith(b"HTTP/1.1 200"), "files that do not fit change nothing"
        install(later, "key")
        with handshake(listener.connect(), client_context(later)) as new:
            new.sendall(get("/", "connection: close"))
            assert received_until_closed(new).startswith(b"HTTP/1.1 200")
        old.sendall(get("/", "connection: close"))
        assert received_until_closed(old).startswith(b"HTTP/1.1 200")


def source_seen(connection: socket.socket) -> str:
    """The source that the application sees."""
    return received_until_closed(connection).rpartition(b"\r\n\r\n")[2].decode()


def test_a_proxy_says_whose_connection_it_passes_on(authority: Authority) -> None:
    asked = get("/source", "connection: close", "x-forwarded-for: 1.1.1.1")
    with listening(proxy_protocol=True, trusted_proxies=LOOPBACK) as plain, plain.connect() as connection:
        connection.sendall(HEADER + asked)
        assert source_seen(connection) == "203.0.113.7", "a header of the caller is ignored"
    with listening(proxy_protocol=True, trusted_proxies=LOOPBACK, **tls_files(authority)) as secure:
        connection = secure.connect()
        connection.sendall(HEADER)
        with handshake(connection, client_context(authority)) as encrypted:
            encrypted.sendall(asked)
            assert source_seen(encrypted) == "203.0.113.7"


def test_a_websocket_comes_from_where_the_proxy_says() -> None:
    with listening(proxy_protocol=True, trusted_proxies=LOOPBACK) as listener, listener.connect() as connection:
        connection.sendall(HEADER + get("/api/v1/notifications", *UPGRADE))
        received = b""
        while b"203.0.113.7" not in received:
            received += connection.recv(1_000) or pytest.fail(f"the socket ended: {received!r}")
        assert received.startswith(b"HTTP/1.1 101 ")


def test_only_a_proxy_may_send_a_proxy_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "HANDSHAKE_SECONDS_MAX", SOON_SECONDS)
    asked = get("/source", "connection: close")
    with listening(proxy_protocol=True, trusted_proxies=["10.0.0.0/8"]) as listener, listener.connect() as connection:
        connection.sendall(HEADER + asked)
        assert received_until_closed(connection) == b""
    with listening(proxy_protocol=True, trusted_proxies=LOOPBACK) as listener:
        for sent in (asked, HEADER[:20]):
            with listener.connect() as connection:
                connection.sendall(sent)
                assert received_until_closed(connection) == b"", "no header, or half of one"


def test_connections_behind_a_proxy_are_counted_by_their_callers() -> None:
    settings: dict[str, Any] = {"proxy_protocol": True, "trusted_proxies": LOOPBACK, "connections_per_source_max": 2}
    with listening(**settings) as listener:
        held = [listener.connect() for _ in range(2)]
        for connection in held:
            connection.sendall(HEADER + get("/waits"))
        wait_for(lambda: listener.waiting == 2, "the requests")
        with listener.connect() as refused:
            refused.sendall(HEADER + get("/"))
            assert received_until_closed(refused) == b""
        with listener.connect() as other:
            other.sendall(HEADER.replace(b"113.7", b"113.8") + get("/", "connection: close"))
            assert received_until_closed(other).startswith(b"HTTP/1.1 200")
        for connection in held:
            connection.close()


def test_connections_of_a_trusted_proxy_are_not_those_of_one_caller() -> None:
    with listening(trusted_proxies=LOOPBACK, connections_per_source_max=1) as listener:
        held = [socket.create_connection(("127.0.0.1", listener.port), timeout=WAIT_SECONDS_MAX) for _ in range(3)]
        for number, connection in enumerate(held):
            connection.sendall(get("/source", "connection: close", f"x-forwarded-for: 203.0.113.{number}"))
            assert source_seen(connection) == f"203.0.113.{number}"
            connection.close()
