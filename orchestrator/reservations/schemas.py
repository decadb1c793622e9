"""Requests and responses of reservations and resources."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag

from berth.process.json_objects import JsonObject
from node_agent.wire.guests import RestartPolicy
from orchestrator.http.documents import Waits
from orchestrator.http.fields import (
    INT32_MAX,
    UNSHOWN,
    VARIANT,
    WHOLE,
    Labels,
    Printable,
    Request,
    Sentence,
    SshKeyIds,
    UserData,
)
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.http.types.numbers import BigCount, Count
from orchestrator.reservations.resource_names import RESOURCE_ID_PATTERN, RESOURCES_MAX
from orchestrator.reservations.states import ReservationState, ResourceState

TTL_SECONDS_DEFAULT = 900
TTL_SECONDS_MAX = 3_600
"""The upper bound of BERTH_HOLD_SECONDS_MAX."""
HolderId = Annotated[str, Field(pattern=rf"^[^\x00-\x1f{UNSHOWN}]+$", max_length=200)]
ResourceId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]+$", max_length=200)]
ClaimCount = Annotated[int, Field(ge=1, le=RESOURCES_MAX), WHOLE]


ChosenRestartPolicy = Annotated[
    RestartPolicy, Field(strict=False, description="whether the node starts the guest again if it ends by itself")
]


class _Hold(Request):
    holder_id: HolderId
    starts_at: Moment | None = Field(None, description="default: now")
    ends_at: Moment | None = Field(None, description="default: open-ended")
    ttl_seconds: Annotated[int, WHOLE] = Field(
        TTL_SECONDS_DEFAULT,
        json_schema_extra={"minimum": 1, "maximum": TTL_SECONDS_MAX},  # refused as `ttl_out_of_range`, not `invalid`
        description="seconds until the hold expires unless confirmed; at most BERTH_HOLD_SECONDS_MAX, also by default",
    )
    name: Printable | None = None


class StartedAllocation(Request):
    """The template of the allocation that starts at `starts_at`."""

    image: Printable | None = None
    ssh_key_ids: SshKeyIds
    name: Printable | None = None
    labels: Labels = Field(default_factory=dict)
    user_data: UserData | None = None
    restart_policy: ChosenRestartPolicy = RestartPolicy.ALWAYS


class HoldNamed(_Hold):
    """Named resources: one, or a bundle, all or nothing."""

    resources: Annotated[list[ResourceId], Field(min_length=1, max_length=RESOURCES_MAX), FailFast()]
    sku: None = None
    gpus: None = None
    region: None = None
    count: None = None
    allocation: None = None


class HoldGpus(_Hold):
    """`count` times so many GPUs of a SKU, each on one node that placement chooses."""

    sku: Printable
    gpus: Annotated[int, Field(ge=1, le=INT32_MAX), WHOLE]
    region: Printable
    count: ClaimCount | None = Field(None, description="default: 1")
    allocation: StartedAllocation | None = None
    resources: None = None


def _variant(value: Any) -> str:
    named = value.get("resources") is not None if isinstance(value, dict) else isinstance(value, HoldNamed)
    return f"{VARIANT}named" if named else f"{VARIANT}gpus"


HoldResources = Annotated[
    Annotated[HoldNamed, Tag(f"{VARIANT}named")] | Annotated[HoldGpus, Tag(f"{VARIANT}gpus")], Discriminator(_variant)
]


class ByHolder(Request):
    """The holder of the reservation; compared exactly."""

    holder_id: HolderId


class ReservationFailure(BaseModel):
    """Why the allocation of its template could not start."""

    code: str
    detail: str | None


class Reservation(BaseModel):
    """A reservation. `created_version` and `released_version` are the log versions of its events, once they are sequenced."""

    reservation_id: UUID
    tenant_id: UUID
    holder_id: str
    status: ReservationState
    result: Literal["ok", "noop"] | None = Field(
        description="in responses to writes: whether the write changed something"
    )
    resources: list[str]
    sku: str | None
    gpus: Count | None
    region: str | None
    count: Count | None
    gpus_held: Count
    starts_at: datetime
    ends_at: datetime | None
    expires_at: datetime | None
    held_at: datetime
    confirmed_at: datetime | None
    ended_at: datetime | None
    retire_after: datetime | None
    created_version: BigCount | None
    released_version: BigCount | None
    waits: Waits | None
    failure: ReservationFailure | None
    allocation: JsonObject | None
    name: str | None
    correlation_id: UUID
    row_version: BigCount


class ReservationQuery(PageQuery):
    """Filters of a list of reservations."""

    state: ReservationState | None = None
    tenant_id: UUID | None = Field(None, description="for operators' keys")


class Resource(BaseModel):
    """A resource and its state."""

    id: str
    kind: Literal["node", "slot", "registered"]
    state: ResourceState
    reason: str | None
    reservation_id: UUID | None = Field(description="the caller's reservation whose window covers now")
    row_version: BigCount


class ResourceQuery(PageQuery):
    """Filters of a list of resources."""

    kind: Literal["node", "slot", "registered"] | None = None


class CreateResource(Request):
    """A resource to register."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Annotated[str, Field(pattern=RESOURCE_ID_PATTERN)]


class TakeOutOfService(Request):
    """The operator's reason; audited, and returned in refusals."""

    reason: Sentence
