"""The finding of `berth doctor` about Temporal: whether it answers, over TLS that both sides accept."""

from __future__ import annotations

import socket
import ssl

from berth.cli.deployment.findings import Finding
from berth.process.temporal_connections import (
    TemporalConnection,
    TemporalSettings,
    UnusableTemporalSettings,
    host_of,
    read_connection,
)

SECONDS_MAX = 5.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
"""RFC 9113 §3.4: how a client begins, with an empty SETTINGS frame. The server's answer ends the doubt whether it takes our
certificate: with TLS 1.3 it judges it after the handshake."""


def temporal_finding(address: str | None, settings: TemporalSettings) -> Finding:
    """Whether the frontend at this address answers a connection made with these settings. The API key is not sent."""
    if address is None:
        return Finding("temporal", "skipped", "no Temporal is known: set BERTH_TEMPORAL_ADDRESS or start `berth up`")
    try:
        connection = read_connection(address, settings)
        detail = _reach(connection)
    except UnusableTemporalSettings as problem:
        return Finding("temporal", "bad", str(problem))
    except ssl.SSLCertVerificationError as error:
        return Finding("temporal", "bad", f"the certificate of {address} is refused: {error.verify_message}")
    except ssl.SSLError as error:
        return Finding("temporal", "bad", f"{address} refuses TLS, or our certificate: {error.reason or error}")
    except (OSError, ValueError) as error:
        return Finding("temporal", "bad", f"{address} cannot be reached: {error}")
    return Finding("temporal", "ok", f"{address} {detail}")


def _reach(connection: TemporalConnection) -> str:
    port = int(connection.address.rpartition(":")[2])
    with socket.create_connection((host_of(connection.address), port), timeout=SECONDS_MAX) as plain:
        if connection.tls is None:
            return "accepts connections"
        with connection.tls.wrap_socket(plain, server_hostname=connection.server_name) as encrypted:
            encrypted.sendall(PREFACE)
            if not encrypted.recv(1):
                raise OSError("it ended the connection after the handshake")
            shown = ", and accepts the client certificate" if connection.certificate is not None else ""
            return f"answers over {encrypted.version()}, its certificate is verified{shown}"
