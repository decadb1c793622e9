"""What the API answers (docs/reference/http-api.md), as immutable pydantic models. Fields of a newer server are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from berth.process.json_objects import JsonObject

FINAL_STATES = frozenset({"released", "failed"})

Item = TypeVar("Item")


class Answer(BaseModel):
    """An answer of the server."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Page(Answer, Generic[Item]):
    """One page of a list. `next_cursor` is None on the last page."""

    items: list[Item]
    next_cursor: str | None = None


class CreatedAllocation(Answer):
    """Answer of a create: the allocation exists and is `requested`."""

    allocation_id: UUID
    status: str
    sku: str
    shape: str
    gpus: int
    region: str
    image: str
    name: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    correlation_id: UUID
    reservation_id: UUID | None = None
    ends_at: datetime | None = None
    requested_at: datetime


class Connection(Answer):
    """Where the tenant logs in, and the host key to expect."""

    host: str
    port: int
    user: str
    host_key: str


class Failure(Answer):
    """What went wrong with an allocation: a stable code, a sentence, and what a person does next."""

    code: str
    detail: str | None = None
    next_step: str | None = None


class Waits(Answer):
    """What an allocation waits for, since when, and until when."""

    for_: str = Field(alias="for")
    since: datetime
    until: datetime | None = None


class PublishedPort(Answer):
    """A TCP port of the node that leads to a port of the guest."""

    port: int
    guest_port: int


class AllocationNetwork(Answer):
    """The place of an allocation in its tenant's network."""

    address: str
    subnet: str
    gateway: str
    names: list[str] = []
    published: list[PublishedPort]


class FirstBoot(Answer):
    """The first boot of the guest's disk, by the guest's own word.

    `pending`, `done`, `degraded`, `error`, `unknown`, `not_applicable`.
    """

    status: str
    since: datetime | None = None
    detail: str | None = None


class Guest(Answer):
    """The guest of an active allocation: its state, the verb in progress, the failure of the last verb, its first boot.

    `rescue`: how to log in to the rescue system that the machine runs, None unless `state` is `rescue`.
    """

    state: str
    verb: str | None = None
    failure: Failure | None = None
    first_boot: FirstBoot | None = None
    rescue: Connection | None = None


class AllocationHealth(Answer):
    """The health of an active allocation: `healthy`, `degraded` or `lost`, and why since when."""

    state: str
    cause: str | None = None
    since: datetime | None = None
    last_proof_of_life_at: datetime | None = None
    waits_until: datetime | None = None


class Allocation(Answer):
    """What a tenant runs on."""

    allocation_id: UUID
    tenant_id: UUID
    status: str
    sku: str
    shape: str
    gpu_model: str
    gpus: int
    region: str
    image: str
    name: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    ssh_key_ids: list[UUID] = Field(default_factory=list)
    node: str | None = None
    slots: list[int] = Field(default_factory=list)
    connection: Connection | None = None
    network: AllocationNetwork | None = None
    guest: Guest | None = None
    health: AllocationHealth | None = None
    restart_policy: str | None = None
    failure: Failure | None = None
    hard_stopped: bool | None = None
    release_result: JsonObject | None = None
    waits: Waits | None = None
    correlation_id: UUID
    reservation_id: UUID | None = None
    ends_at: datetime | None = None
    row_version: int
    requested_at: datetime
    active_at: datetime | None = None
    releasing_at: datetime | None = None
    released_at: datetime | None = None
    release_failed_at: datetime | None = None
    failed_at: datetime | None = None


class Actor(Answer):
    """The actor of a timeline entry."""

    kind: str
    id: str | None = None


class TimelineEntry(Answer):
    """One line of an allocation's story: a transition, a phase of a task, or a note."""

    at: datetime
    kind: str
    from_: str | None = Field(default=None, alias="from")
    to: str | None = None
    phase: str | None = None
    code: str | None = None
    detail: str | None = None
    next_step: str | None = None
    actor: Actor
    fence: int | None = None


class SshKey(Answer):
    """A tenant's public key."""

    id: UUID
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


class AccountTenant(Answer):
    """The tenant that the caller acts for."""

    id: UUID
    name: str
    state: str


class QuotaUse(Answer):
    """A quota: its limit, and what counts in it."""

    quota: str
    limit: int
    used: int


class TenantQuotas(Answer):
    """The quotas of a tenant; `gpus_limit` None: no limit of GPUs."""

    tenant_id: UUID
    gpus_limit: int | None = None
    gpus_used: int
    quotas: list[QuotaUse]


class AccountLimits(Answer):
    """Bounds of a tenant; `gpus_limit` None: no limit."""

    gpus_limit: int | None
    gpus_used: int
    subscribers_max: int
    webhooks_max: int
    hold_seconds_max: float
    window_seconds_max: float
    quotas: list[QuotaUse] = Field(default_factory=list)


class Account(Answer):
    """The caller; `tenant` and `limits` are None for an operator."""

    principal_id: UUID
    role: str
    scopes: list[str] | None = None
    tenant: AccountTenant | None
    limits: AccountLimits | None


class Sku(Answer):
    """What is sold."""

    name: str
    shape: str
    gpu_model: str
    allowed_counts: list[int]
    default_image: str | None = None
    price_micro_per_gpu_second: int = 0
    price_version: int = 1
    state: str = "active"
    vcpus_per_gpu: int | None = None
    memory_bytes_per_gpu: int | None = None


class Region(Answer):
    """Where nodes are."""

    name: str
    display_name: str


class Availability(Answer):
    """What could be placed now, or throughout the window asked for; `largest_now` is the largest count that one node takes.

    The rest is there where a window, or a number, was asked for: `available` times `gpus` can be had, each on one node, and
    `count` times from `earliest_at` on; `reason` says why that never comes.
    """

    sku: str
    region: str
    free_gpus: int
    largest_now: int
    total_gpus: int
    gpus: int | None = None
    count: int | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    available: int | None = None
    earliest_at: datetime | None = None
    reason: str | None = None


class Tenant(Answer):
    """A customer that rents. `gpus_limit` of None means no limit. `deleted_at`: deleted for good."""

    id: UUID
    name: str
    state: str
    gpus_limit: int | None = None
    gpus_used: int = 0
    created_at: datetime
    deleted_at: datetime | None = None
    row_version: int
    limits: dict[str, int] = Field(default_factory=dict)


class ApiKey(Answer):
    """An API key without its secret."""

    id: UUID
    name: str
    role: str
    tenant_id: UUID | None = None
    prefix: str
    created_at: datetime
    revoked_at: datetime | None = None
    expires_at: datetime | None = None
    owner: str | None = None
    last_used_at: datetime | None = None
    replaced_by: UUID | None = None
    break_glass: bool = False
    scopes: list[str] | None = None


class NewApiKey(ApiKey):
    """An API key as shown once, when it is made."""

    key: str


class DeadLetter(Answer):
    """An event that a consumer of the log gave up on: why, and what became of it."""

    id: UUID
    consumer: str
    version: int
    event_id: UUID | None = None
    event_type: str | None = None
    reason: str
    detail: str
    excerpt: str
    tries: int
    state: str
    first_at: datetime
    last_at: datetime
    retry_asked_at: datetime | None = None
    settled_at: datetime | None = None
    row_version: int


class Orphan(Answer):
    """What a node holds although nothing says that it should; its `slots` are out of service."""

    id: UUID
    node_id: UUID
    allocation_id: UUID
    slots: list[int]
    fence: int | None = None
    state: str
    first_seen_at: datetime
    last_seen_at: datetime
    decided_by: str | None = None
    decided_at: datetime | None = None
    reason: str | None = None
    adopted_for: UUID | None = None
    attempts: int
    failure: Failure | None = None
    destroyed_at: datetime | None = None
    waits: Waits | None = None
    row_version: int


class AuditPrincipal(Actor):
    """What acted: kind, id and, of a caller of the API, role."""

    role: str | None = None


class AuditEntry(Answer):
    """An audited action: the caller, the object and the outcome. `hash` chains it to all entries before it."""

    sequence: int
    id: int
    at: datetime
    recorded_at: datetime
    principal: AuditPrincipal
    tenant_id: UUID | None = None
    source: str | None = None
    user_agent: str | None = None
    action: str
    subject: str
    status: int | None = None
    code: str
    operation_key: str | None = None
    request_id: str | None = None
    correlation_id: UUID | None = None
    detail: JsonObject = Field(default_factory=dict)
    hash: str
