"""Requests and responses of allocations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from berth.process.json_objects import JsonObject
from node_agent.wire.first_boot import FirstBootStatus
from node_agent.wire.guests import RestartPolicy
from orchestrator.allocations.health import Health, OutageCause
from orchestrator.allocations.rules import NewEnd
from orchestrator.allocations.states import AllocationState, GuestState, Verb
from orchestrator.http.documents import Actor, Failure, Waits
from orchestrator.http.fields import (
    INT32_MAX,
    VARIANT,
    WHOLE,
    Id,
    Labels,
    Printable,
    Request,
    Sentence,
    SshKeyIds,
    UserData,
)
from orchestrator.http.paging import Cursor, PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.http.types.numbers import BigCount, Count, Port
from orchestrator.reservations.schemas import ChosenRestartPolicy, HolderId, StartedAllocation

TIMELINE_LIMIT_MAX = 1_000


class CreateAllocation(Request):
    """A request for GPUs of a SKU in a region; `ssh_key_ids` are the keys that may log in."""

    sku: Printable
    gpus: Annotated[int, Field(ge=1, le=INT32_MAX), WHOLE]
    region: Printable
    image: Printable | None = None
    ssh_key_ids: SshKeyIds
    name: Printable | None = None
    labels: Labels = Field(default_factory=dict)
    user_data: UserData | None = None
    restart_policy: ChosenRestartPolicy = RestartPolicy.ALWAYS
    ends_at: Moment | None = Field(None, description="when Berth releases it; default: never")


class ChangeAllocation(Request):
    """Changes to an allocation; a member left out is unchanged, `labels` replaces all labels. At least one is required."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    name: Printable | None = None
    labels: Labels | None = None
    ends_at: Moment | None = Field(None, description="when Berth releases it; null: never")

    @property
    def end(self) -> NewEnd | None:
        """The end that the request gives; None: the member is absent, which differs from null."""
        return NewEnd(self.ends_at) if "ends_at" in self.model_fields_set else None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.name is None and self.labels is None and self.end is None:
            raise ValueError("send name, labels or ends_at")
        return self

    @model_serializer(mode="wrap")
    def _with_null(self, serialize: SerializerFunctionWrapHandler) -> JsonObject:
        """The content for the fingerprint of the request: a null `ends_at` is no default, unlike an absent one."""
        document: JsonObject = serialize(self)
        return document if self.end is None else {**document, "ends_at": document.get("ends_at")}


class ConsumeReservation(StartedAllocation):
    """A request to turn one claim of a reservation into an allocation. `sku` is required if the reservation names resources."""

    reservation_id: Id
    holder_id: HolderId
    sku: Printable | None = None


def _create_variant(value: Any) -> str:
    reserved = "reservation_id" in value if isinstance(value, dict) else isinstance(value, ConsumeReservation)
    return f"{VARIANT}reserved" if reserved else f"{VARIANT}placed"


CreateOrConsume = Annotated[
    Annotated[CreateAllocation, Tag(f"{VARIANT}placed")] | Annotated[ConsumeReservation, Tag(f"{VARIANT}reserved")],
    Discriminator(_create_variant),
]


class CreatedAllocation(BaseModel):
    """The response to a create."""

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
    """The SSH endpoint of the allocation."""

    host: str
    port: Port
    user: str
    host_key: str


class PublishedPort(BaseModel):
    """A TCP port of the node that leads to a port of the guest."""

    port: Port
    guest_port: Port


class AllocationNetwork(BaseModel):
    """The place of an allocation in its tenant's network: leased to it alone."""

    address: str = Field(description="IPv4, leased to this allocation alone")
    subnet: str = Field(description="the tenant's network in the region, in CIDR notation")
    gateway: str = Field(
        description="the node's address in the network; DHCP and DNS answer there unless the node has them off"
    )
    names: list[str] = Field(
        description="the guest's names in the network: its host name and, if it is a DNS label that no other guest of the"
        " network had at the first attempt, the allocation's name in lower case"
    )
    published: list[PublishedPort]


class FirstBoot(BaseModel):
    """The first boot of the guest's disk, by the guest's own word: whether cloud-init, and with it the user data, has ended."""

    status: FirstBootStatus = Field(
        description="unknown: the node reports none, or nothing readable; not_applicable: the image has no cloud-init"
    )
    since: datetime | None = Field(description="when Berth learned of the status; null while nothing is known")
    detail: str | None = Field(description="what cloud-init says of its end")


class Guest(BaseModel):
    """The guest of an active allocation: its state, the verb in progress, the failure of the last verb, its first boot, and its
    rescue system."""

    state: GuestState
    verb: Verb | None
    failure: Failure | None
    first_boot: FirstBoot
    rescue: Connection | None = Field(description="the SSH endpoint of the rescue system that the machine runs")


class AllocationHealth(BaseModel):
    """The health of an active allocation. The other members are null while it is `healthy`."""

    state: Health
    cause: OutageCause | None
    since: datetime | None = Field(description="when the outage was noticed")
    last_proof_of_life_at: datetime | None = Field(description="the last proof that the guest ran, before the outage")
    waits_until: datetime | None = Field(
        description="when a degraded allocation counts as lost, and a lost one is released; null: never"
    )


class Allocation(BaseModel):
    """An allocation."""

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
    ssh_key_ids: list[UUID] = Field(
        description="the keys that it was created with, without keys that the tenant removed since; empty after proven cleanup"
    )
    node: str | None
    slots: list[Count]
    connection: Connection | None
    network: AllocationNetwork | None = Field(
        description="its place in its tenant's network, from the first attempt on until proven cleanup; null elsewhere"
    )
    restart_policy: RestartPolicy
    guest: Guest | None = Field(description="while active; null in every other state")
    health: AllocationHealth | None = Field(description="while active; null in every other state")
    failure: Failure | None
    hard_stopped: bool | None
    release_result: JsonObject | None
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


class TimelineEntry(BaseModel):
    """One entry of an allocation's timeline."""

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


class AllocationQuery(PageQuery):
    """Filters of a list of allocations."""

    state: AllocationState | None = None
    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,63}=[^\x00-\x1f\x7f]{0,255}$")] | None = Field(
        None, description="key=value"
    )
    tenant_id: UUID | None = Field(None, description="for operators' keys")


def label_of(query: AllocationQuery) -> tuple[str, str] | None:
    """Key and value of the label filter; a value may contain `=`."""
    if query.label is None:
        return None
    key, _, value = query.label.partition("=")
    return key, value


class TimelineQuery(PageQuery):
    """A page of the timeline."""

    limit: int = Field(TIMELINE_LIMIT_MAX, ge=1, le=TIMELINE_LIMIT_MAX)
    cursor: Cursor = None
    tenant_id: UUID | None = Field(None, description="for operators' keys")


def _stated(value: Any) -> Any:
    # Python treats 1 as equal to True; an audited statement must be true itself.
    if value is not True:
        raise ValueError("must be true: it states that an operator verified that nothing remains on the units")
    return value


class ForceCleanup(Request):
    """An operator's statement that nothing of the allocation remains on its units, with the reason; audited."""

    runtime_verified_absent: Annotated[Literal[True], BeforeValidator(_stated)]
    reason: Sentence


class ForceRelease(Request):
    """An operator's reason; audited."""

    reason: Sentence
