"""What was seen of webhooks, payments, balances and quotas. Times without a zone are of the history's monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID


@dataclass
class HookMessage:
    """A request as the receiver of webhooks got it.

    `answered`: the status that the receiver sent; None if it closed the connection first.
    """

    hook: str
    at: float
    headers: Mapping[str, str]
    body: bytes
    answered: int | None = None

    @property
    def message_id(self) -> str:
        """The `webhook-id` header."""
        return self.headers.get("webhook-id", "")


@dataclass
class EnabledSpan:
    """The versions for which a webhook was enabled: those after `after`, up to `until` (None: still enabled)."""

    after: int
    until: int | None = None


@dataclass
class SigningKey:
    """A key that signs from the response of its creation on. `until_asked`: a request that ends it began then."""

    key: str
    since_told: float
    until_asked: float = float("inf")


@dataclass
class Pause:
    """From the response that showed a webhook disabled or deleted to the request that enabled it again."""

    told: float
    ended_asked: float = float("inf")


EVENT_TRUNCATED = "event_truncated"
"""The error of a delivery whose event the log dropped while its webhook was disabled: it is final."""


@dataclass(frozen=True)
class HookDelivery:
    """A delivery as the API lists it."""

    number: int
    version: int | None
    event_id: str
    state: str
    attempts: int
    error: str | None
    response_status: int | None


@dataclass
class Hook:
    """A webhook as its owner knows it; `name` is the path that the receiver gave it.

    `position` and `deliveries` are the last read, after the run; None where it was deleted before.
    """

    name: str
    tenant_id: UUID
    types: tuple[str, ...] = ()
    webhook_id: UUID | None = None
    spans: list[EnabledSpan] = field(default_factory=list)
    keys: list[SigningKey] = field(default_factory=list)
    has_other_keys: bool = False
    """Whether it may sign with a key that its owner was never given: a rotation whose outcome stayed unknown."""
    pauses: list[Pause] = field(default_factory=list)
    disabled: Pause | None = None
    """The last of the pauses in which it was disabled; the others are of its tenant."""
    is_deleted: bool = False
    position: int | None = None
    deliveries: list[HookDelivery] | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether its owner knows it to be enabled."""
        return bool(self.spans) and self.spans[-1].until is None

    def disable(self, position: int, told: float) -> None:
        """Note a response that shows it disabled."""
        if self.is_enabled:
            self.spans[-1].until = position
            self.disabled = Pause(told)
            self.pauses.append(self.disabled)

    def enable(self, position: int, asked: float) -> None:
        """Note a response that shows it enabled again, by a request that began at `asked`."""
        if not self.is_enabled:
            self.spans.append(EnabledSpan(position))
            if self.disabled is not None:
                self.disabled.ended_asked = asked


@dataclass(frozen=True)
class LedgerLine:
    """A line of the ledger in the database, after the run."""

    tenant_id: UUID
    kind: str
    amount: int
    allocation_id: UUID | None
    starts_at: datetime | None
    ends_at: datetime | None
    operation_key: str | None


@dataclass(frozen=True)
class UsageSeen:
    """The usage of one allocation as the API reports it, after the run."""

    allocation_id: UUID
    starts_at: datetime
    ends_at: datetime
    amount: int


@dataclass(frozen=True)
class QuotaLimit:
    """What a tenant may use of one quota, as an operator set it."""

    tenant_id: UUID
    quota: str
    limit: int


@dataclass(frozen=True)
class RateLimit:
    """The rate of a tenant's class of requests in each process: `burst` at once, `per_second` after."""

    clients: frozenset[str]
    per_second: float
    burst: float
    processes: int


@dataclass(frozen=True)
class Limited:
    """A response 429 to a read."""

    client: str
    what: str


@dataclass
class Books:
    """Ledger, balances and usage after the run, when metering had reached the end of the log."""

    lines: list[LedgerLine] = field(default_factory=list)
    settled: dict[UUID, int] = field(default_factory=dict)
    """The settled amount of each tenant of the campaign, by the API."""
    usage: list[UsageSeen] = field(default_factory=list)


@dataclass
class Accounts:
    """Everything that was seen of webhooks, money and quotas, appended to as it happens."""

    hooks: list[Hook] = field(default_factory=list)
    messages: list[HookMessage] = field(default_factory=list)
    hook_calm_seconds: float = 6.0
    """An attempt under way may arrive so long after a webhook was disabled."""
    hook_grace_seconds: float = 25.0
    """The same where a fault hit the sender, its link or PostgreSQL: it may have been paused between lease and request."""
    prices: dict[tuple[str, int], int] = field(default_factory=dict)
    """Micro-units per GPU and second, by SKU and price version, as an operator set them."""
    prepaid: set[UUID] = field(default_factory=set)
    tenants: set[UUID] = field(default_factory=set)
    """Every tenant of the campaign."""
    owners: dict[str, UUID] = field(default_factory=dict)
    """The tenant of each client that has one, by the client's name."""
    books: Books | None = None
    quotas: list[QuotaLimit] = field(default_factory=list)
    used: dict[UUID, dict[str, int]] = field(default_factory=dict)
    """What each tenant used of each quota when everything had ended."""
    rate: RateLimit | None = None
    limited: list[Limited] = field(default_factory=list)
