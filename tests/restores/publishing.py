"""What a database has written is published, before it is lost."""

from __future__ import annotations

from tests.allocations.seeding import connect
from tests.support.rebuilding import run as rebuild


def publish(url: str, nats_url: str) -> None:
    """Give every event its version, and publish it."""
    with connect(url) as connection:
        while connection.execute("select log_advance(1000)").fetchone() != (0,):
            continue
    rebuild(url, nats_url)
