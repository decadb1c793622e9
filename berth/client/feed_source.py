"""The feed as a consumer's source (docs/how-to/consume-events.md)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from berth.client.async_client import AsyncClient
from berth.client.feed.events import Event


class FeedSource:
    """Events from `GET /v1/subscribe`: an operator's key gets all, a tenant's its own; the chain is whole either way."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def event_lists(self, after: int) -> AsyncGenerator[list[Event], None]:
        """As `consumer.Source` says. A leader change ends the stream, and the next begins when it is accepted."""
        return self._client.event_lists(after)
