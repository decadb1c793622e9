"""The audit over syslog: TLS, TCP and local sockets, to receivers that stall, die with unread bytes, or are not verified."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.local.servers import free_port
from tests.audit_stream.certificates import Certificates, issue
from tests.audit_stream.processes import append, stream_of, streaming
from tests.audit_stream.receivers import Receiver, local_receiver, tcp_receiver
from tests.support.waiting import wait_for

ROWS = 400


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a receiver's certificate for localhost, and a client's."""
    return issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def socket_path(data_directory: Path) -> Path:
    """A short path, as local sockets need it."""
    data_directory.mkdir(parents=True)
    return data_directory / "s"


def without_repetitions(receiver: Receiver) -> list[int]:
    """The sequences in the order in which each arrived first."""
    return list(dict.fromkeys(receiver.sequences))


def test_messages_over_tls(
    database_url: str, database: psycopg.Connection[Any], certificates: Certificates, tmp_path: Path
) -> None:
    append(database, ROWS)
    settings = {
        "BERTH_AUDIT_SYSLOG_CA_FILE": str(certificates.authority),
        "BERTH_AUDIT_SYSLOG_CERTIFICATE_FILE": str(certificates.client),
    }
    with tcp_receiver(certificates.server_context(client_required=True)) as receiver:
        with streaming(database_url, tmp_path, BERTH_AUDIT_SYSLOG_URL=receiver.url, **settings) as streamer:
            receiver.await_rows(ROWS)
            newest = append(database, 2)
            wait_for(lambda: stream_of(database, "syslog")[0] == newest, "the new rows")
            assert streamer.stop() == 0
        assert (receiver.sequences, receiver.problems) == (list(range(1, newest + 1)), [])
    assert receiver.raw[0].startswith(b"<110>1 20")
    assert b" control-1 berth - audit [meta sequenceId=" in receiver.raw[0]
    assert receiver.documents[0]["unmapped"]["detail"] == {"n": 1, "é": '<"\\>', "x": 1.5}
    assert all(message.isascii() for message in receiver.raw)


@pytest.mark.full
@pytest.mark.quick("name")
@pytest.mark.parametrize("fault", ["authority", "name", "client"])
def test_a_receiver_that_is_not_verified_gets_no_row(
    database_url: str, database: psycopg.Connection[Any], certificates: Certificates, tmp_path: Path, fault: str
) -> None:
    append(database, 1)
    authority = issue(tmp_path).authority if fault == "authority" else certificates.authority
    with tcp_receiver(certificates.server_context(client_required=fault == "client")) as receiver:
        url = receiver.url.replace("localhost", "127.0.0.1") if fault == "name" else receiver.url
        settings = {"BERTH_AUDIT_SYSLOG_URL": url, "BERTH_AUDIT_SYSLOG_CA_FILE": str(authority)}
        with streaming(database_url, tmp_path, **settings):
            wait_for(lambda: stream_of(database, "syslog")[1], "the failure on record")
    position, _, why = stream_of(database, "syslog")
    assert (position, receiver.documents) == (0, [])
    assert why is not None
    assert "syslog receiver" in why


def tcp(_: Path) -> AbstractContextManager[Receiver]:
    return tcp_receiver()


def local_stream(path: Path) -> AbstractContextManager[Receiver]:
    return local_receiver(path, socket.SOCK_STREAM)


def local_datagrams(path: Path) -> AbstractContextManager[Receiver]:
    return local_receiver(path, socket.SOCK_DGRAM)


@pytest.mark.full
@pytest.mark.quick("local_datagrams")
@pytest.mark.parametrize("receiving", [tcp, local_stream, local_datagrams])
def test_messages_without_tls_on_this_machine(
    database_url: str,
    database: psycopg.Connection[Any],
    socket_path: Path,
    tmp_path: Path,
    receiving: Callable[[Path], AbstractContextManager[Receiver]],
) -> None:
    append(database, ROWS)
    with receiving(socket_path) as receiver:
        with streaming(database_url, tmp_path, BERTH_AUDIT_SYSLOG_URL=receiver.url) as streamer:
            receiver.await_rows(ROWS)
            wait_for(lambda: stream_of(database, "syslog")[0] == ROWS, "the position")
            assert streamer.stop() == 0
        assert (receiver.sequences, receiver.problems) == (list(range(1, ROWS + 1)), [])


@pytest.mark.full
def test_rows_that_a_dying_receiver_did_not_read_are_sent_again(
    database_url: str, database: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """The kernel has acknowledged them, the receiver has not read them: the reset connection gives them away."""
    port = free_port()
    with tcp_receiver(port=port, reads=False) as dying:
        with streaming(
            database_url, tmp_path, BERTH_AUDIT_SYSLOG_URL=dying.url, BERTH_AUDIT_SYSLOG_SETTLE_SECONDS="3"
        ) as streamer:
            append(database, 20)
            wait_for(lambda: streamer.metric("berth_audit_stream_sent_total", target="syslog") == 20, "it is sent")
            assert stream_of(database, "syslog")[0] == 0, "it has not settled"
            dying.reset_connections()
            dying.reading.set()
            dying.await_rows(20)
            wait_for(lambda: stream_of(database, "syslog")[0] == 20, "the position")
        assert without_repetitions(dying) == list(range(1, 21))
        assert dying.accepted >= 2


# Long; the quicker test: test_rows_that_a_dying_receiver_did_not_read_are_sent_again.
@pytest.mark.full
def test_a_receiver_that_reads_nothing_stops_the_stream_alone(
    database_url: str, database: psycopg.Connection[Any], tmp_path: Path
) -> None:
    with tcp_receiver(reads=False) as receiver:
        with streaming(database_url, tmp_path, BERTH_AUDIT_SYSLOG_URL=receiver.url):
            # More than the buffers of both kernels hold.
            newest = append(database, 20_000)
            wait_for(lambda: stream_of(database, "syslog")[1], "the failure on record")
            assert append(database, 1) == newest + 1
            assert stream_of(database, "syslog")[0] < newest
            receiver.reading.set()
            receiver.reset_connections()
            wait_for(lambda: stream_of(database, "syslog")[0] == newest + 1, "the backlog")
        receiver.await_rows(newest + 1)
        assert without_repetitions(receiver) == list(range(1, newest + 2))


@pytest.mark.full
def test_a_receiver_that_is_away_and_comes_back(
    database_url: str, database: psycopg.Connection[Any], tmp_path: Path
) -> None:
    port = free_port()
    with streaming(database_url, tmp_path, BERTH_AUDIT_SYSLOG_URL=f"tcp://127.0.0.1:{port}") as streamer:
        append(database, 30)
        wait_for(lambda: stream_of(database, "syslog")[1], "the failure on record")
        wait_for(lambda: streamer.metric("berth_audit_stream_backlog_rows", target="syslog") == 30, "the metric")
        with tcp_receiver(port=port) as receiver:
            receiver.await_rows(30)
            wait_for(lambda: stream_of(database, "syslog") == (30, False, None), "the recovery")
            assert (receiver.sequences, receiver.problems) == (list(range(1, 31)), [])


@pytest.mark.full
def test_a_row_that_is_too_large_is_sent_without_its_detail(
    database_url: str, database: psycopg.Connection[Any], tmp_path: Path
) -> None:
    database.execute(
        "insert into audit (principal_kind, principal_id, action, subject, detail)"
        " values ('system', 'test', 'thing.turn', 'things/1', jsonb_build_object('x', repeat('y', 9000)))"
    )
    append(database, 1)
    with tcp_receiver() as receiver:
        with streaming(database_url, tmp_path, BERTH_AUDIT_SYSLOG_URL=receiver.url):
            receiver.await_rows(2)
        assert (receiver.sequences, receiver.problems) == (list(range(1, 3)), [])
    large = receiver.documents[0]["unmapped"]
    assert ("detail" in large, large["detail_omitted_bytes"]) == (False, 9_008)


@pytest.mark.full
def test_a_missing_row_of_the_chain_stops_the_stream(
    database_url: str, database: psycopg.Connection[Any], tmp_path: Path
) -> None:
    append(database, 5)
    with database.transaction():
        database.execute("set local session_replication_role = replica")
        database.execute("delete from audit_chain where sequence = 3")
    with tcp_receiver() as receiver, streaming(database_url, tmp_path, BERTH_AUDIT_SYSLOG_URL=receiver.url) as streamer:
        wait_for(lambda: stream_of(database, "syslog")[1], "the failure on record")
        assert streamer.metric("berth_audit_stream_failures_total", target="syslog", reason="gap") >= 1
    position, _, why = stream_of(database, "syslog")
    assert (position, receiver.documents) == (0, [])
    assert why == "rows of the chain are missing behind 0; run `berth audit verify`, nothing more is sent"


def test_the_client_context_requires_a_modern_tls(certificates: Certificates, tmp_path: Path) -> None:
    from worker.audit_stream.syslog_target import SyslogTarget

    target = SyslogTarget("tls://localhost", "h", 8_192, 1.0, 0.0, certificates.authority)
    context = target._context()
    assert (context.minimum_version, context.verify_mode, context.check_hostname) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.CERT_REQUIRED,
        True,
    )
