"""The TLS context of a listener, loaded again when its files change: no restart, and no connection ends."""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

log = structlog.get_logger("orchestrator.tls")
ReadAt = tuple[int, ...]


def server_context(certificate_file: Path, key_file: Path, *client_cas_files: Path) -> ssl.SSLContext:
    """TLS 1.2 and 1.3 for HTTP/1.1; with `client_cas_files`, a client certificate of one of their CAs is required,
    and TLS 1.3 shows it in each handshake: no session is resumed.

    Raises OSError or `ssl.SSLError` (an OSError) for files that do not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate_file, key_file)
    if client_cas_files:
        context.verify_mode = ssl.CERT_REQUIRED
        # Agents resume no session, and each ticket, two for a connection, would hold the client's certificate. Not
        # OP_NO_TICKET: it makes OpenSSL keep every session that has ended.
        context.num_tickets = 0
    for file in client_cas_files:
        context.load_verify_locations(file)
    return context


class ReloadedContext:
    """The context of the files as they are. Files that do not fit leave the last context in use.

    Raises OSError if the files do not fit at the beginning.
    """

    def __init__(self, certificate_file: Path, key_file: Path, *client_cas_files: Path) -> None:
        self._files = (certificate_file, key_file, *client_cas_files)
        self._seen = self._state()
        self._context = server_context(*self._files)

    def current(self) -> ssl.SSLContext:
        """The context for the next connection: the files are read again if one of them was changed since."""
        try:
            state = self._state()
            if state != self._seen:
                self._context = server_context(*self._files)
                self._seen = state
                log.info("certificate_reloaded", file=str(self._files[0]))
        except (
            OSError
        ) as error:  # one file of two was replaced, or neither can be read: the next connection tries again
            log.warning("certificate_not_reloaded", file=str(self._files[0]), why=str(error))
        return self._context

    def _state(self) -> ReadAt:
        found = [file.stat() for file in self._files]
        return tuple(number for each in found for number in (each.st_ino, each.st_size, each.st_mtime_ns))
