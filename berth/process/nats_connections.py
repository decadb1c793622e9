"""How every process of ours connects to NATS: addresses, TLS, and an inbox that other users cannot read."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NotRequired, TypedDict


class NatsOptions(TypedDict):
    """Arguments of `nats.connect`."""

    servers: list[str]
    name: str
    tls: NotRequired[ssl.SSLContext]
    inbox_prefix: NotRequired[str]


def nats_options(nats_url: str, name: str, ca_file: Path | None = None, inbox: str | None = None) -> NatsOptions:
    """Arguments of `nats.connect`. `ca_file` verifies the server instead of the system's authorities.

    `inbox`: the user whose inbox receives the replies (`berth/local/nats-roles.conf`); None: the shared one.
    Raises OSError if the file cannot be read, `ssl.SSLError` if it holds no certificate.
    """
    options: NatsOptions = {"servers": [server.strip() for server in nats_url.split(",")], "name": name}
    if ca_file is not None:
        options["tls"] = ssl.create_default_context(cafile=str(ca_file))
    if inbox is not None:
        options["inbox_prefix"] = f"_INBOX_{inbox}"
    return options
