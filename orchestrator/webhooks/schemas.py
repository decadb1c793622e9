"""Webhooks as the API accepts and returns them (docs/reference/webhooks.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field

from berth.process.json_objects import JsonObject
from orchestrator.http.fields import WHOLE, Request, Sentence
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.http.types.numbers import BigCount, Count
from orchestrator.log.events import EventType
from orchestrator.log.store.feed import TRANSACTION
from orchestrator.webhooks.addresses import URL_LENGTH_MAX, read_webhook_url

TYPES_MAX = 50
URL_PATTERN = r"^[hH][tT][tT][pP][sS]?://[!\"$&-.0->A-\[\]-~]+([/?][!\"$-\[\]-~]*)?$"
"""Visible ASCII without fragment, user and backslash; the host is read by `read_webhook_url`."""
OVERLAP_SECONDS_MAX = 30 * 86_400
OVERLAP_SECONDS_DEFAULT = 86_400
_TYPES = sorted({*(kind.value for kind in EventType), TRANSACTION})
_FAMILIES = sorted({f"{name[: place + 1]}*" for name in _TYPES for place, sign in enumerate(name) if sign == "."})
_NAMES = frozenset({*_TYPES, *_FAMILIES})


def _parseable(url: str) -> str:
    read_webhook_url(url)
    return url


def _known(name: str) -> str:
    # A misspelt type would never match an event.
    if name not in _NAMES:
        raise ValueError("must be an event type, or `<family>.*`")
    return name


Url = Annotated[
    str,
    Field(min_length=1, max_length=URL_LENGTH_MAX, json_schema_extra={"format": "webhook-url", "pattern": URL_PATTERN}),
    AfterValidator(_parseable),
]
TypeName = Annotated[
    str, Field(max_length=100, json_schema_extra={"enum": [*_TYPES, *_FAMILIES]}), AfterValidator(_known)
]
Types = Annotated[
    list[TypeName], Field(max_length=TYPES_MAX, description="Event types and families; empty: every event")
]
SigningName = Literal["hmac", "ed25519"]
StateName = Literal["enabled", "disabled"]


class CreateWebhook(Request):
    """The URL to send events to, and their types."""

    url: Url
    types: Types = Field(default_factory=list)
    description: Sentence | None = None
    signing: SigningName = "hmac"


class ChangeWebhook(Request):
    """Changes to a webhook; a member left out is unchanged."""

    url: Url | None = None
    types: Types | None = None
    description: Sentence | None = None
    state: StateName | None = None


class RotateWebhook(Request):
    """How long the older keys sign as well."""

    overlap_seconds: Annotated[int, Field(ge=0, le=OVERLAP_SECONDS_MAX), WHOLE] = OVERLAP_SECONDS_DEFAULT


class ReplayDeliveries(Request):
    """Replays the deliveries that failed at `since` or later."""

    since: Moment


class Webhook(BaseModel):
    """A webhook. `position`: every event up to this version has its delivery."""

    id: UUID
    url: str
    description: str | None
    types: list[str]
    signing: SigningName
    public_keys: list[str] = Field(description="Keys that verify its messages (Ed25519), newest first")
    state: StateName
    disabled_reason: Literal["requested", "gone", "failing", "key_revoked", "key_expired"] | None
    disabled_at: datetime | None
    failing_since: datetime | None = Field(description="Since when every attempt has failed")
    position: BigCount
    missed_before: BigCount | None = Field(
        description="Events before this version were truncated before the webhook reached them"
    )
    created_at: datetime
    updated_at: datetime


class WebhookWithSecret(Webhook):
    """The response that creates a key: `secret` (HMAC) is returned only here."""

    secret: str | None = None


class Delivery(BaseModel):
    """A message to a webhook, identified by `number`. `version` is null for a test message."""

    number: BigCount
    version: BigCount | None
    event_id: UUID
    event_type: str
    state: Literal["pending", "succeeded", "failed"]
    attempts: Count
    next_attempt_at: datetime | None
    attempted_at: datetime | None
    duration_ms: Count | None
    response_status: Annotated[int, Field(ge=100, le=999)] | None
    response_excerpt: str | None
    error: str | None
    history: list[JsonObject]
    created_at: datetime
    ended_at: datetime | None


class DeliveryQuery(PageQuery):
    """The filter of a list of deliveries."""

    state: Literal["pending", "succeeded", "failed"] | None = None


class ReplayCounts(BaseModel):
    """How many deliveries are sent again, how many are left for another call, and of how many the event was truncated."""

    replayed: Count
    left: Count
    truncated: Count
