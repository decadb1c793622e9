"""Questions that a fault asks of the product while it lasts. Each answers what is broken: the check, and a sentence."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import psycopg

EVENTS_MAX = 1000
ANSWER_SECONDS_MAX = 3.0


def stalled_events(database_url: str) -> list[tuple[str, str]]:
    """Sequence events, as any process may, and see whether one that waited still waits.

    Raises `psycopg.Error` if the database cannot be asked.
    """
    with psycopg.connect(database_url, autocommit=True, connect_timeout=3) as connection:
        connection.execute("set lock_timeout = '2s'")
        waited = [row[0] for row in connection.execute("select id from outbox order by id limit %s", (EVENTS_MAX,))]
        connection.execute("select log_advance(%s)", (EVENTS_MAX,))
        row = connection.execute("select count(*) from outbox where id = any(%s)", (waited,)).fetchone()
    assert row is not None
    if not row[0]:
        return []
    return [("log moves", f"{row[0]} of {len(waited)} events get no version while another transaction is open")]


def accepted_although_expired(client_pem: Path, port: int) -> list[tuple[str, str]]:
    """Send a request to the listener for nodes with a certificate that has ended; an answer is wrong.

    `client_pem`: the file of the certificate and its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(client_pem)
    # In TLS 1.3 the alert that refuses a client's certificate arrives after its handshake.
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
        if connection.recv(1):
            return [("only valid certificates", f"port {port} answered a node whose certificate has ended")]
    return []
