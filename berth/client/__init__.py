"""The Python client of Berth's API: `Client` blocks, `AsyncClient` awaits; the methods are the same.

    with Client("http://127.0.0.1:8080", key) as berth:
        made = berth.create_allocation(sku="h100.slice", gpus=2, region="eu-1", ssh_key_ids=[key_id])
        active = berth.wait_for(made.allocation_id, {"active"}, timeout_seconds=60)

Imports nothing else of ours and works from any program.
"""

from berth.client.awaiting import AsyncClient
from berth.client.blocking import Client
from berth.client.calls import Call
from berth.client.errors import (
    AlreadyExists,
    BerthError,
    Forbidden,
    Invalid,
    InvalidState,
    NodeInUse,
    NotFound,
    OperationConflict,
    OperationInProgress,
    OutcomeUnknown,
    Overloaded,
    QuotaExceeded,
    SecretNotShownAgain,
    SkuUnavailable,
    StateUnreachable,
    Unauthenticated,
    Unavailable,
    WaitTimeout,
)
from berth.client.models import (
    FINAL_STATES,
    Allocation,
    ApiKey,
    AuditEntry,
    Availability,
    Connection,
    CreatedAllocation,
    DeadLetter,
    EnrolmentToken,
    Image,
    NewApiKey,
    Node,
    Orphan,
    Page,
    Region,
    Sku,
    Slot,
    SshKey,
    Tenant,
    TimelineEntry,
)

__all__ = [
    "FINAL_STATES",
    "Allocation",
    "AlreadyExists",
    "ApiKey",
    "AsyncClient",
    "AuditEntry",
    "Availability",
    "BerthError",
    "Call",
    "Client",
    "Connection",
    "CreatedAllocation",
    "DeadLetter",
    "EnrolmentToken",
    "Forbidden",
    "Image",
    "Invalid",
    "InvalidState",
    "NewApiKey",
    "Node",
    "NodeInUse",
    "NotFound",
    "OperationConflict",
    "OperationInProgress",
    "Orphan",
    "OutcomeUnknown",
    "Overloaded",
    "Page",
    "QuotaExceeded",
    "Region",
    "SecretNotShownAgain",
    "Sku",
    "SkuUnavailable",
    "Slot",
    "SshKey",
    "StateUnreachable",
    "Tenant",
    "TimelineEntry",
    "Unauthenticated",
    "Unavailable",
    "WaitTimeout",
]
