"""Allocations as tenants ask for them and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.allocations.states import AllocationState
from orchestrator.http.fields import INT32_MAX, WHOLE, Id, Printable, Request, Sentence, describe_map
from orchestrator.http.moments import Moment
from orchestrator.http.numbers import BigCount, Count, Port
from orchestrator.http.paging import Cursor, PageQuery

LABELS_MAX = 64
SSH_KEYS_MAX = 64
USER_DATA_LENGTH_MAX = 65_536
TIMELINE_LIMIT_MAX = 1_000

LabelKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,63}$")]
LabelValue = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=255)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=LABELS_MAX, json_schema_extra=describe_map)]


class CreateAllocation(Request):
    """What is wanted: so many GPUs of a SKU in a region, with whose keys to log in."""

    sku: Printable
    gpus: Annotated[int, Field(ge=1, le=INT32_MAX), WHOLE]
    region: Printable
    image: Printable | None = None
    ssh_key_ids: Annotated[list[Id], Field(min_length=1, max_length=SSH_KEYS_MAX)]
    name: Printable | None = None
    labels: Labels = Field(default_factory=dict)
    user_data: Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=USER_DATA_LENGTH_MAX)] | None = None
    ends_at: Moment | None = Field(None, description="when it is released by itself; default: never")

    def content(self) -> dict[str, Any]:
        """What a retry must repeat. Members that came later are told only where they are given: keys outlive an upgrade."""
        return self.model_dump(mode="json", exclude={"ends_at"} if self.ends_at is None else None)


class CreatedAllocation(BaseModel):
    """The answer to a create."""

    allocation_id: UUID
    status: Literal["requested"]
    sku: str
    shape: str
    gpus: Count
    region: str
    image: str
    name: str | None
    labels: dict[str, str]
    correlation_id: UUID
    reservation_id: UUID | None
    ends_at: datetime | None
    requested_at: datetime


class Connection(BaseModel):
    """Where the tenant logs in."""

    host: str
    port: Port
    user: str
    host_key: str


class Failure(BaseModel):
    """What went wrong, and what a person does next (docs/failures.md)."""

    code: str
    detail: str | None
    next_step: str | None


class Waits(BaseModel):
    """What it waits for (P9)."""

    model_config = ConfigDict(populate_by_name=True)

    for_: str = Field(alias="for")
    since: datetime
    until: datetime | None


class Allocation(BaseModel):
    """What a tenant runs on."""

    allocation_id: UUID
    tenant_id: UUID
    status: AllocationState
    sku: str
    shape: str
    gpu_model: str
    gpus: Count
    region: str
    image: str
    name: str | None
    labels: dict[str, str]
    node: str | None
    slots: list[Count]
    connection: Connection | None
    failure: Failure | None
    hard_stopped: bool | None
    release_result: dict[str, Any] | None
    waits: Waits | None
    correlation_id: UUID
    reservation_id: UUID | None
    ends_at: datetime | None
    row_version: BigCount
    requested_at: datetime
    active_at: datetime | None
    releasing_at: datetime | None
    released_at: datetime | None
    release_failed_at: datetime | None
    failed_at: datetime | None


class Actor(BaseModel):
    """Who caused something."""

    kind: str
    id: str | None


class TimelineEntry(BaseModel):
    """One line of an allocation's story."""

    model_config = ConfigDict(populate_by_name=True)

    at: datetime
    kind: Literal["transition", "progress", "note"]
    from_: str | None = Field(alias="from")
    to: str | None
    phase: str | None
    code: str | None
    detail: str | None
    next_step: str | None
    actor: Actor
    fence: BigCount | None


class TenantQuery(BaseModel):
    """Whose allocation it is."""

    model_config = ConfigDict(extra="forbid")

    tenant_id: UUID | None = Field(None, description="for operators' keys")


class AllocationQuery(PageQuery):
    """Which allocations to list."""

    state: AllocationState | None = None
    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,63}=[^\x00-\x1f\x7f]{0,255}$")] | None = Field(
        None, description="key=value"
    )
    tenant_id: UUID | None = Field(None, description="for operators' keys")


def label_of(query: AllocationQuery) -> tuple[str, str] | None:
    """The label asked for, as key and value; a value may contain `=`."""
    if query.label is None:
        return None
    key, _, value = query.label.partition("=")
    return key, value


class TimelineQuery(PageQuery):
    """Which part of the timeline."""

    limit: int = Field(TIMELINE_LIMIT_MAX, ge=1, le=TIMELINE_LIMIT_MAX)
    cursor: Cursor = None
    tenant_id: UUID | None = Field(None, description="for operators' keys")


def _stated(value: Any) -> Any:
    # Python holds 1 for equal to true; a statement on the record does not.
    if value is not True:
        raise ValueError("must be true: whoever calls has looked and found nothing left")
    return value


class ForceCleanup(Request):
    """An operator's statement that nothing of the allocation is left on its units, and why; on the record."""

    runtime_verified_absent: Annotated[Literal[True], BeforeValidator(_stated)]
    reason: Sentence


class ForceRelease(Request):
    """An operator's reason, on the record."""

    reason: Sentence
