"""An agent of a site whose every byte the test decides."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from tests.consoles.stage import SECONDS_MAX, AgentLink
from tests.sites.consoles.staging import ConsoleSites

__all__ = ["AgentLink", "dialled"]


def dialled(stage: ConsoleSites, certificate: Path) -> AgentLink:
    """A connection to the listener for consoles, with this client certificate."""
    context = ssl.create_default_context(cafile=str(stage.authority.ca_certificate))
    context.load_cert_chain(certificate)
    plain = socket.create_connection(("127.0.0.1", stage.endpoints.console_port), timeout=SECONDS_MAX)
    return AgentLink(context.wrap_socket(plain, server_hostname="127.0.0.1"))
