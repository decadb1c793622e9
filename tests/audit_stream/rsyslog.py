"""A real rsyslogd that receives the audit over TLS and writes each object as a line, as the how-to configures it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from berth.local.servers import free_port
from tests.audit_stream.certificates import Certificates
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "access" / "stream-the-audit.md"
DAEMON = "/usr/sbin/rsyslogd"
DRIVERS = {"gtls": "lmnsd_gtls.so", "ossl": "lmnsd_ossl.so"}
"""By stream driver: its module, of the packages rsyslog-gnutls and rsyslog-openssl."""


@dataclass
class Rsyslog:
    """Files of a daemon; `start` and `stop` are those of the process, which keeps what it wrote."""

    directory: Path
    configuration: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def documents(self) -> list[dict[str, Any]]:
        """The objects that it has written, in order. Raises `ValueError` for a line that is no object."""
        path = self.directory / "berth-audit.jsonl"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def sequences(self) -> list[int]:
        """The sequences of the rows that it has written."""
        return [int(document["metadata"]["sequence"]) for document in self.documents()]

    def start(self) -> None:
        """Return when it listens."""
        command = [_program() or DAEMON, "-n", "-f", str(self.configuration), "-i", str(self.directory / "pid")]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._listens, "rsyslogd to listen")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """End it in order."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(WAIT_SECONDS_MAX)


def _program() -> str | None:
    return shutil.which("rsyslogd") or (DAEMON if Path(DAEMON).exists() else None)


def require_rsyslog(driver: str) -> None:
    """Skip the test, naming what is missing."""
    if _program() is None:
        pytest.skip("rsyslogd is not installed (Debian: rsyslog)")
    if not any(path.exists() for path in Path("/usr/lib").glob(f"*/rsyslog/{DRIVERS[driver]}")):
        pytest.skip(f"rsyslogd has no {DRIVERS[driver]} (Debian: rsyslog-gnutls, rsyslog-openssl)")


def configuration_of_the_page() -> str:
    """The configuration that the how-to gives."""
    found = re.search(r"```rsyslog\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@contextmanager
def rsyslog(directory: Path, certificates: Certificates, driver: str) -> Iterator[Rsyslog]:
    """A running daemon with the page's configuration, in this directory and on a free port."""
    text, port = configuration_of_the_page(), free_port()
    key = directory / "key.pem"
    key.write_bytes(certificates.server.read_bytes())
    for old, new in {
        "/etc/rsyslog.d/berth-ca.pem": str(certificates.authority),
        "/etc/rsyslog.d/berth-certificate.pem": str(certificates.server),
        "/etc/rsyslog.d/berth-key.pem": str(key),
        "/var/log/berth-audit.jsonl": str(directory / "berth-audit.jsonl"),
        '"gtls"': f'"{driver}"',
        'port="6514"': f'port="{port}" address="127.0.0.1"',
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    configuration = directory / "rsyslog.conf"
    configuration.write_text(text)
    made = Rsyslog(directory, configuration, port)
    made.start()
    try:
        yield made
    finally:
        assert made.process is not None
        made.process.kill()
        made.process.wait()
