"""The Python client of Berth's API: `Client` blocks, `AsyncClient` awaits; the methods are the same.

    with Client("http://127.0.0.1:8080", key) as berth:
        made = berth.create_allocation(sku="h100.slice", gpus=2, region="eu-1", ssh_key_ids=[key_id])
        active = berth.wait_for(made.allocation_id, {"active"}, timeout_seconds=60)

Imports nothing else of ours and works from any program.
"""

from berth.client.access_errors import (
    AttestationRefused,
    AttestationRequired,
    DriverRefused,
    IdentityConflict,
    InsecureAddress,
    IssuerUnavailable,
    RoleRequired,
    ScopeRequired,
    ScopesExceeded,
    TooManyCertificates,
    TooManyFailures,
)
from berth.client.approvals import (
    Approval,
    ApprovalPending,
    ApprovalPerson,
    ApprovalRequested,
    ApprovalTableFull,
    RequestedApproval,
    SecondOperatorRequired,
)
from berth.client.async_client import AsyncClient
from berth.client.calls.api_keys import RotatedApiKey
from berth.client.calls.balances import Balance, Payment
from berth.client.calls.call import Call
from berth.client.calls.retention import LogConsumer, RetentionPolicy
from berth.client.calls.subscriptions import NotificationSubscription
from berth.client.calls.tenants import Invitation, Member, NewInvitation
from berth.client.calls.usage import Usage
from berth.client.calls.webhooks import Delivery, Replayed, Webhook
from berth.client.consoles.models import (
    ConsoleBusy,
    ConsoleLog,
    ConsoleLogAbsent,
    ConsoleNotSetUp,
    ConsoleUnavailable,
    ConsoleUnsupported,
    TooManyConsoles,
)
from berth.client.errors import (
    AlreadyExists,
    BalanceDepleted,
    BalanceInsufficient,
    BalanceOutOfBounds,
    BerthError,
    CertificatePending,
    DatabaseUnavailable,
    ExpirationIndexFull,
    Forbidden,
    HeadTooLarge,
    HolderMismatch,
    ImageInUse,
    ImageUnavailable,
    Internal,
    Invalid,
    InvalidCursor,
    InvalidState,
    Malformed,
    MethodNotAllowed,
    NodeInUse,
    NotFound,
    OperationConflict,
    OperationFenced,
    OperationInProgress,
    OperationTableFull,
    OutcomeUnknown,
    Overloaded,
    Refused,
    RequestTimeout,
    ReservationNotFound,
    ReservationRetired,
    ReservationTableFull,
    ResourceBusy,
    ResourceNotAllocatable,
    ResourceNotFound,
    ResourceOutOfService,
    ResourceTableFull,
    RestoreInProgress,
    SecretNotShownAgain,
    SkuUnavailable,
    SlotOverflow,
    SshKeyNotFound,
    TenantNotActive,
    TokenExpired,
    TokenInvalid,
    TokenNotYetValid,
    TooLarge,
    TtlOutOfRange,
    Unauthenticated,
    Unavailable,
    UnreadableAnswer,
    VerbInProgress,
    WindowInvalid,
)
from berth.client.feed.events import Event
from berth.client.hardware.adoptions import Adoption, NotAdoptable
from berth.client.hardware.attestations import AcceptedPcrs, Attestation, AttestationUnavailable, NodeAttestations
from berth.client.hardware.deploy_systems import (
    DeployNotConfigured,
    DeployRefused,
    DeploySystem,
    DeploySystemEnded,
    DeployTask,
    Finding,
    MachineUnknown,
    NoDeploySystem,
    NotWipeable,
    PermittedDeploySystem,
)
from berth.client.hardware.devices import AllocationDevices, GuestDevice
from berth.client.hardware.faults import FaultReport, FaultReportsOpen, ReplacementInProgress, TooManyFaultReports
from berth.client.hardware.firmware import AcceptedFirmware, FirmwareList
from berth.client.hardware.images import Image, ImageStatement, OfferedImage
from berth.client.hardware.pieces import Hardware, HardwareEntry, HardwarePlace, Repair
from berth.client.hardware.pools import Pool
from berth.client.hardware.sites import (
    Bmc,
    BmcTask,
    SealedBmcPassword,
    SealingOutdated,
    Site,
    SiteAgent,
    SiteAgentToken,
    SiteInUse,
    SiteLease,
)
from berth.client.hardware.sizes import GuestSizeFixed, GuestSizeMisfit, GuestSizeUnsupported
from berth.client.hardware.switches import (
    HeardSwitch,
    LeasedSegment,
    NodePorts,
    ReadPort,
    SetPort,
    SiteSegments,
    SwitchPort,
)
from berth.client.health import (
    BurnIn,
    BurnInRequired,
    BurnInUnsupported,
    GpuReset,
    GpuResetUnsupported,
    GpusInService,
    HealthFault,
    HealthReport,
    NodeHealth,
)
from berth.client.limit_errors import ConcurrencyLimited, RateLimited
from berth.client.log_errors import (
    EventStubbed,
    LeaderUnaccepted,
    LogGap,
    LogTruncated,
    MessageRefused,
    PositionLost,
    RangeInvalid,
    RetentionOutOfBounds,
    TooManyMessages,
    UpgradeRequired,
    VersionInFuture,
    VersionMissing,
    VersionNotReached,
)
from berth.client.maintenance import (
    ClaimInTheWay,
    MaintenanceConflict,
    MaintenancePlan,
    MaintenanceTableFull,
    MaintenanceTaskInvalid,
    MaintenanceTaskUnsupported,
    MaintenanceWindow,
    MaintenanceWindowInvalid,
    NodeTask,
    WindowTask,
)
from berth.client.models import (
    FINAL_STATES,
    Allocation,
    ApiKey,
    AuditEntry,
    AuditPrincipal,
    Availability,
    Connection,
    CreatedAllocation,
    DeadLetter,
    NewApiKey,
    Orphan,
    Page,
    Region,
    Sku,
    SshKey,
    Tenant,
    TimelineEntry,
)
from berth.client.node_models import EnrolmentToken, Node, Quarantine, Slot
from berth.client.requests.operation_keys import OperationKey, parse_key
from berth.client.reservation_models import (
    RESERVATION_FINAL_STATES,
    Operation,
    Reservation,
    Resource,
)
from berth.client.retention_errors import Archived, AuditTruncated
from berth.client.sync_client import Client
from berth.client.tenant_errors import (
    AlreadyMember,
    InvitationInvalid,
    LastAdminKey,
    QuotaExceeded,
    TenantDeleted,
    TenantInUse,
)
from berth.client.topologies import NodeTopology, TopologyChanged, TopologyDifference, TopologyMisfit
from berth.client.waiting_errors import StateUnreachable, WaitTimeout
from berth.client.webhook_errors import (
    WebhookBusy,
    WebhookKeysFull,
    WebhooksUnavailable,
    WebhookUnverified,
    WebhookUrlRefused,
)
from berth.client.webhooks import verify_webhook
from berth.client.wipe_certificates import WipeCertificate, WipeCertificateMissing

__all__ = [
    "FINAL_STATES", "RESERVATION_FINAL_STATES", "AcceptedFirmware", "AcceptedPcrs", "Adoption", "Allocation",
    "AllocationDevices", "AlreadyExists", "AlreadyMember", "ApiKey", "Approval", "ApprovalPending", "ApprovalPerson",
    "ApprovalRequested", "ApprovalTableFull", "Archived", "AsyncClient", "Attestation", "AttestationRefused",
    "AttestationRequired", "AttestationUnavailable", "AuditEntry", "AuditPrincipal", "AuditTruncated",
    "Availability", "Balance", "BalanceDepleted", "BalanceInsufficient", "BalanceOutOfBounds", "BerthError", "Bmc",
    "BmcTask", "BurnIn", "BurnInRequired", "BurnInUnsupported", "Call", "CertificatePending", "ClaimInTheWay",
    "Client", "ConcurrencyLimited", "Connection", "ConsoleBusy", "ConsoleLog", "ConsoleLogAbsent",
    "ConsoleNotSetUp", "ConsoleUnavailable", "ConsoleUnsupported", "CreatedAllocation", "DatabaseUnavailable", "DeadLetter",
    "Delivery",
    "DeployNotConfigured", "DeployRefused", "DeploySystem", "DeploySystemEnded", "DeployTask", "DriverRefused",
    "EnrolmentToken", "Event", "EventStubbed", "ExpirationIndexFull", "FaultReport", "FaultReportsOpen", "Finding",
    "FirmwareList", "Forbidden", "GpuReset", "GpuResetUnsupported", "GpusInService", "GuestDevice",
    "GuestSizeFixed", "GuestSizeMisfit", "GuestSizeUnsupported", "Hardware", "HardwareEntry", "HardwarePlace",
    "HeadTooLarge", "HealthFault", "HealthReport", "HeardSwitch", "HolderMismatch", "IdentityConflict", "Image", "ImageInUse",
    "ImageStatement", "ImageUnavailable", "InsecureAddress", "Internal", "Invalid", "InvalidCursor",
    "InvalidState", "Invitation", "InvitationInvalid", "IssuerUnavailable", "LastAdminKey", "LeaderUnaccepted",
    "LeasedSegment", "LogConsumer", "LogGap",
    "LogTruncated", "MachineUnknown", "MaintenanceConflict", "MaintenancePlan", "MaintenanceTableFull",
    "MaintenanceTaskInvalid", "MaintenanceTaskUnsupported", "MaintenanceWindow", "MaintenanceWindowInvalid",
    "Malformed", "Member", "MessageRefused", "MethodNotAllowed", "NewApiKey", "NewInvitation", "NoDeploySystem", "Node",
    "NodeAttestations", "NodeHealth", "NodeInUse", "NodePorts", "NodeTask", "NodeTopology", "NotAdoptable", "NotFound",
    "NotWipeable",
    "NotificationSubscription",
    "OfferedImage", "Operation", "OperationConflict", "OperationFenced", "OperationInProgress", "OperationKey",
    "OperationTableFull", "Orphan", "OutcomeUnknown", "Overloaded", "Page", "Payment", "PermittedDeploySystem",
    "Pool", "PositionLost", "Quarantine", "QuotaExceeded", "RangeInvalid", "RateLimited", "ReadPort", "Refused", "Region",
    "Repair", "ReplacementInProgress", "Replayed", "RequestTimeout", "RequestedApproval", "Reservation",
    "ReservationNotFound", "ReservationRetired", "ReservationTableFull", "Resource", "ResourceBusy",
    "ResourceNotAllocatable", "ResourceNotFound", "ResourceOutOfService", "ResourceTableFull", "RestoreInProgress",
    "RetentionOutOfBounds", "RetentionPolicy", "RoleRequired", "RotatedApiKey", "ScopeRequired", "ScopesExceeded",
    "SealedBmcPassword", "SealingOutdated",
    "SecondOperatorRequired", "SecretNotShownAgain", "SetPort", "Site", "SiteAgent", "SiteAgentToken",
    "SiteInUse", "SiteLease", "SiteSegments", "Sku", "SkuUnavailable", "Slot", "SlotOverflow", "SshKey", "SshKeyNotFound",
    "StateUnreachable", "SwitchPort", "Tenant", "TenantDeleted", "TenantInUse", "TenantNotActive", "TimelineEntry",
    "TokenExpired", "TokenInvalid", "TokenNotYetValid", "TooLarge", "TooManyCertificates", "TooManyConsoles",
    "TooManyFailures", "TooManyFaultReports", "TooManyMessages", "TopologyChanged", "TopologyDifference",
    "TopologyMisfit", "TtlOutOfRange", "Unauthenticated", "Unavailable", "UnreadableAnswer", "UpgradeRequired",
    "Usage", "VerbInProgress", "VersionInFuture", "VersionMissing", "VersionNotReached", "WaitTimeout", "Webhook",
    "WebhookBusy", "WebhookKeysFull", "WebhookUnverified", "WebhookUrlRefused", "WebhooksUnavailable",
    "WindowInvalid", "WindowTask", "WipeCertificate", "WipeCertificateMissing", "parse_key", "verify_webhook",
]  # fmt: skip
