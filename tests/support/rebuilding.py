"""The stream rebuilt from the log, and what is asked of it."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from nats.aio.client import Client

from outbox_relay.rebuilding import Order, Rebuilt, rebuild
from outbox_relay.settings import Settings
from outbox_relay.stream import wanted_configuration
from tests.outbox_relay.relays import (
    STREAM,
    asked,
    leave_events,
)

CONFIGURATION = wanted_configuration(Settings(database_url="postgresql://none", nats_url="nats://none"), 1)


def leave_log(database: psycopg.Connection, count: int) -> None:
    """Commit events and give them their versions."""
    leave_events(database, [{"number": number} for number in range(count)])
    while database.execute("select log_advance(1000)").fetchone() != (0,):
        continue


def run(database_url: str, nats_url: str, order: Order | None = None) -> Rebuilt:
    """Rebuild in this process."""
    settings = Settings(database_url=database_url, nats_url=nats_url, relay_step_back_seconds=0.2)
    return asyncio.run(rebuild(settings, order or Order()))


def ask(nats_url: str, what: str, *arguments: Any) -> Any:
    """Call a method of JetStream."""

    async def call(client: Client) -> Any:
        return await getattr(client.jetstream(), what)(*arguments)

    return asked(nats_url, call)


def first_sequence(nats_url: str) -> int:
    """The version that the stream begins with."""
    return int(ask(nats_url, "stream_info", STREAM).state.first_seq)
