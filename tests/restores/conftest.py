"""The relay's fixtures: a NATS of the module's own, and relays that end with the test."""

from tests.outbox_relay.conftest import database, nats_url, own_nats, start_relay

__all__ = ["database", "nats_url", "own_nats", "start_relay"]
