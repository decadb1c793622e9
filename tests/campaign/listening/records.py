"""What subscribers over HTTP received: one record for each connection, in the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Heard:
    """An event as it arrived. `prev_version` None: the stream is filtered and has no chain."""

    version: int
    prev_version: int | None
    event_id: str
    type: str
    tenant_id: str | None
    operation_key: str | None
    data: dict[str, Any]


@dataclass
class Session:
    """One connection of one subscriber. `tenant` None: an operator's. `types`: the filter; empty: everything.

    `after` is the version after which it began: the requested one of the feed, that of the message `begin` on a socket.
    `acked` and `acknowledged`: before it was opened, the highest version that the server had confirmed as stored, and the
    highest that the client had sent; None where the subscriber has no stored offset.
    """

    subscriber: str
    tenant: str | None
    after: int
    began: float
    types: tuple[str, ...] = ()
    acked: int | None = None
    acknowledged: int | None = None
    events: list[Heard] = field(default_factory=list)
    scanned_to: int = 0
    """The highest checkpoint."""
    refused: str | None = None
    """The code of a refusal, or of the message that ended the stream."""
    first_version: int | None = None
    """As the refusal `log_truncated` names it."""
    ended: float | None = None
    url: str = ""
    """Of the API process that it was opened at."""

    @property
    def reached(self) -> int:
        """The version up to which everything must have arrived."""
        last = self.events[-1].version if self.events else self.after
        return max(self.after, last, self.scanned_to)


@dataclass
class PolicySpan:
    """A retention policy, from its acknowledgement to the request that deleted it; None: not deleted."""

    kept_from: int
    since: float
    until: float | None = None
