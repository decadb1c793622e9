"""Every setting of the orchestrator, read once at start from `BERTH_*` environment variables."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from berth.process.server_addresses import DatabaseUrl
from node_agent.wire.sites import LEASE_SECONDS_MAX
from orchestrator.approvals.settings import ApprovalSettings
from orchestrator.consoles.settings import ConsoleSettings
from orchestrator.database.replicas.settings import ReplicaSettings
from orchestrator.http.oidc.oidc_settings import OidcSettings
from orchestrator.http.principal_settings import PrincipalSettings
from orchestrator.log.feed.limits import FeedLimits, SocketLimits
from orchestrator.maintenance.settings import MaintenanceSettings
from orchestrator.notifications.store import SubscriptionRetention
from orchestrator.operations.execution import Limits
from orchestrator.operations.gate_settings import GateSettings
from orchestrator.problems import Quota


class Settings(
    PrincipalSettings, ApprovalSettings, ConsoleSettings, MaintenanceSettings, OidcSettings, ReplicaSettings
):
    """Addresses, files and bounds. Durations are seconds, sizes bytes."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    database_url: DatabaseUrl = Field(
        description="postgresql:// address of the database; beyond this machine sslmode is verify-full if none is given"
    )
    database_pool_size: int = Field(
        8,
        ge=1,
        le=200,
        description="connections of each process; as many more for reservations, half for creates, 8 for lookups and nodes",
    )
    database_reserve_size: int = Field(
        4,
        ge=1,
        le=50,
        description="connections beside these for releases, cancels and confirms by owners, and results; no verb takes all",
    )
    lock_timeout_seconds: float = Field(5.0, gt=0, description="how long a request waits for a row")
    transaction_timeout_seconds: float = Field(30.0, gt=0, description="longest transaction")

    public_host: str = Field("127.0.0.1", description="address of the public listener")
    public_port: int = Field(8080, ge=1, le=65535, description="port of the public listener")
    public_tls_certificate_file: Path | None = Field(
        None,
        description="PEM certificate chain of the public listener, which then speaks TLS; read again when it changes",
    )
    public_tls_key_file: Path | None = Field(None, description="PEM key of the public listener's certificate")
    hsts_seconds: int = Field(
        31_536_000, ge=0, description="max-age of Strict-Transport-Security on the public listener's TLS; 0: none"
    )
    trusted_proxies: list[str] = Field(
        [], description="networks (JSON list of CIDR) of the proxies before the public listener; default: none"
    )
    proxy_header: Literal["x-forwarded-for", "forwarded"] = Field(
        "x-forwarded-for", description="header in which trusted proxies name the caller; any other is ignored"
    )
    proxy_protocol: bool = Field(
        False, description="whether each connection begins with a PROXY header (v1 or v2), of a trusted proxy"
    )
    node_host: str = Field("127.0.0.1", description="address of the node listener")
    node_port: int = Field(8443, ge=1, le=65535, description="port of the node listener")
    node_api_url: str = Field("https://127.0.0.1:8443", description="where nodes reach the node listener")
    metrics_host: str = Field("127.0.0.1", description="address of the metrics and health listener")
    metrics_port: int | None = Field(None, ge=1, le=65535, description="port of the metrics and health listener")
    graceful_stop_seconds: int = Field(
        15, ge=0, description="how long requests may run on after SIGTERM; connections without one are closed at once"
    )
    startup_seconds_max: float = Field(60.0, gt=0, description="how long to wait for the database at start")
    otlp_endpoint: str | None = Field(None, description="http(s):// address of an OTLP collector; default: no traces")
    trace_sample_ratio: float = Field(1.0, ge=0, le=1, description="share of allocations that are traced")

    trust_domain: str = Field("berth.local", description="SPIFFE trust domain of node identities")
    node_ca_certificate_file: Path | None = Field(None, description="PEM certificates of the node CAs that are trusted")
    deploy_ca_certificate_file: Path | None = Field(
        None, description="PEM certificates of the CAs of deploy systems; default: the node listener serves none"
    )
    node_tls_certificate_file: Path | None = Field(
        None,
        description="PEM server certificate of the node listener; read again when it changes, as its key and the CAs",
    )
    node_tls_key_file: Path | None = Field(None, description="PEM key of the node listener")
    key_set_file: Path | None = Field(
        None, description="key set that the offline root has signed; agents get it as it is, read again when it changes"
    )
    webhook_key_file: Path | None = Field(
        None, description="keys that seal webhooks' secrets, base64 of 32 bytes per line: the first seals, all open"
    )
    certificate_wait_seconds: float = Field(
        5.0, ge=0, le=60, description="how long an enrolment or renewal waits for the issuer before 503"
    )
    public_ca_file: Path | None = Field(
        None, description="PEM CA of the public listener's TLS; enrolment tokens carry its pin"
    )
    public_api_url: str | None = Field(
        None,
        pattern=r"^(https://[^/\s]+/?)?$",
        max_length=300,
        description="https:// address where deploy systems reach the public listener; default or empty: none can be permitted",
    )
    enrolment_token_seconds: float = Field(600.0, gt=0, description="default life of an enrolment token")

    cors_origins: list[str] = Field(
        [],
        description="origins (JSON list) whose pages may call the public listener from a browser; default: none, no CORS",
    )
    docs_ui: bool = Field(
        False, description="serve Swagger UI at /docs on the public listener; its scripts come from a public CDN"
    )

    body_bytes_max: int = Field(262_144, ge=1024, description="largest request body")
    body_seconds_max: float = Field(10.0, gt=0, description="longest time for a request's body to come whole")
    min_version_seconds_max: float = Field(
        5.0, ge=0, le=60, description="longest wait of a read for the version that it is to include"
    )
    feed_subscribers_max: int = Field(2_000, ge=1, description="open streams of the log in a process; beyond it 503")
    feed_tenant_subscribers_max: int = Field(
        200, ge=1, description="default of each tenant's quota of streams and sockets in a process; beyond it 429"
    )
    feed_buffer_bytes_max: int = Field(
        8_388_608, ge=1_024, description="what may wait for a subscriber; beyond it its connection is closed"
    )
    feed_tenant_bytes_max: int = Field(67_108_864, ge=1_024, description="the same for all subscribers of a tenant")
    feed_bytes_max: int = Field(268_435_456, ge=1_024, description="the same for all subscribers of a process")
    feed_stall_seconds: float = Field(30.0, gt=0, description="how long a subscriber may take nothing")
    feed_keepalive_seconds: float = Field(
        15.0, gt=0, description="silence before a sign of life; as often is looked whether a subscriber may still read"
    )
    feed_checkpoint_seconds: float = Field(1.0, ge=0, description="least time between checkpoints of a silent stream")
    feed_readers_max: int = Field(
        2, ge=1, le=32, description="subscribers that read the log at once to catch up; each has a connection"
    )
    notifications_subscriptions_max: int = Field(
        20, ge=1, le=1_000, description="named subscriptions of a tenant, and of the operators together"
    )
    notifications_kept_seconds: float = Field(
        604_800.0,
        gt=0,
        le=3_153_600_000,
        description="how long a subscription keeps its place and the log behind it, when nothing is acknowledged",
    )
    notifications_kept_versions_max: int = Field(
        1_000_000, ge=1, le=2**62, description="how far behind the log's head a subscription keeps it"
    )
    notifications_message_bytes_max: int = Field(
        1_024, ge=128, le=65_536, description="largest message from a client; a larger one ends its socket"
    )
    notifications_messages_per_second_max: int = Field(
        20,
        ge=1,
        description="messages, and as many pings and pongs, that a client may send in a second; beyond it its socket is closed",
    )
    notifications_recheck_seconds: float = Field(
        1.0, gt=0, description="how often the right to read of each socket's client is checked again"
    )
    notifications_ack_seconds: float = Field(
        0.5, ge=0, description="least time between writes of one socket's position"
    )
    requests_in_flight_max: int = Field(2_000, ge=1, description="requests served at once; beyond it new ones get 503")
    connections_max: int = Field(16_384, ge=1, description="connections of each listener; beyond it new ones get 503")
    connections_per_source_max: int = Field(
        4_096,
        ge=0,
        description="connections of the public listener from one address that is no trusted proxy's; 0: no bound",
    )
    failed_attempts_max: int = Field(
        100, ge=0, description="wrong credentials from one address at once; beyond it 429; 0: no bound"
    )
    failed_attempts_per_second: float = Field(
        10.0, gt=0, description="wrong credentials from one address that are looked up, in the long run"
    )
    credential_cache_seconds: float = Field(
        1.0, ge=0, description="how long a checked API key, or a token's tenant, is trusted without asking"
    )
    api_key_lifetime_seconds_max: int = Field(
        0,
        ge=0,
        le=3_153_600_000,
        description="longest life of a new API key: a later `expires_at` is refused, a missing one becomes this; 0: no bound",
    )
    catalogue_cache_seconds: float = Field(
        1.0, ge=0, description="how long SKUs, images and pools are read from memory"
    )
    combined_max: int = Field(
        32, ge=1, le=256, description="most creates (or holds, or confirms) combined in one transaction"
    )
    combined_in_flight_max: int = Field(
        2, ge=1, le=32, description="such transactions of each kind at once in a process"
    )
    combining_queue_max: int = Field(
        4_000, ge=1, description="creates (or holds) waiting for their transaction; beyond it 503"
    )

    kv_key_bytes_max: int = Field(1_024, ge=1, le=2_047, description="longest key of a transaction")
    kv_value_bytes_max: int = Field(65_536, ge=0, le=180_000, description="largest value of a key")
    kv_operations_max: int = Field(1_000, ge=1, le=10_000, description="most operations of a transaction")
    kv_preconditions_max: int = Field(1_000, ge=1, le=10_000, description="most preconditions of a transaction")
    kv_transaction_bytes_max: int = Field(
        200_000, ge=1_000, le=250_000, description="largest transaction: its operations as its event contains them"
    )
    kv_namespace_keys_max: int = Field(
        100_000, ge=1, description="keys of a tenant, deleted ones that the log still contains included"
    )
    kv_namespace_bytes_max: int = Field(268_435_456, ge=1, description="bytes of a tenant's keys and values")
    kv_log_bytes_per_day_max: int = Field(
        4_294_967_296, ge=1, description="bytes that a tenant's transactions write to the log in a day (UTC)"
    )
    kv_request_id_length_min: int = Field(20, ge=1, le=255, description="shortest request_id of a commit")

    retention_policies_max: int = Field(
        100, ge=1, le=1_000, description="retention policies of a tenant, and of the operators together"
    )
    retention_tenant_versions_max: int = Field(
        10_000_000, ge=1, le=2**62, description="how far behind the log's head a tenant's policy holds"
    )

    webhooks_max: int = Field(20, ge=1, le=1_000, description="webhooks of a tenant, and of the operators together")
    webhook_pending_max: int = Field(
        5_000,
        ge=1,
        le=100_000,
        description="deliveries of a webhook that wait for an attempt; beyond it its position waits",
    )
    webhook_retention_versions_max: int = Field(
        10_000_000, ge=1, le=2**62, description="how far behind the log's head a webhook keeps the log for itself"
    )
    webhook_http_allowed: bool = Field(
        False, description="whether webhooks may have http:// URLs; for trying things out"
    )
    webhook_private_addresses_allowed: bool = Field(
        False, description="whether webhooks may be sent to addresses that are not of the public internet"
    )

    webhook_ports: list[int] = Field(
        [443, 8443], description="ports (JSON list) that webhooks may be sent to; empty: any"
    )

    task_dispatch_tick_seconds: float = Field(0.015, gt=0, description="how often waiting nodes are served")
    task_dispatch_batch_max: int = Field(256, ge=1, description="most tasks handed out by one statement")
    site_lease_seconds: float = Field(
        20.0,
        ge=1,
        le=LEASE_SECONDS_MAX,
        description="how long an agent holds the lease of its site unless it renews it",
    )

    requested_seconds_max: float = Field(300.0, gt=0, description="longest wait in `requested`")
    lost_after_seconds: float = Field(
        600.0,
        gt=0,
        le=31_536_000,
        description="a degraded allocation that has not recovered for so long counts as lost",
    )
    lost_release_seconds: float = Field(
        86_400.0, ge=0, le=31_536_000, description="a lost allocation is released after so long; 0: never"
    )
    fault_reports_per_day_max: int = Field(
        50, ge=0, le=100_000, description="faults that a tenant may report within 24 hours"
    )
    provision_seconds_max: float = Field(900.0, gt=0, description="longest wait in `provisioning`")
    release_seconds_max: float = Field(300.0, gt=0, description="longest wait for one release attempt")
    release_attempts_max: int = Field(3, ge=1, description="release attempts before `release_failed`")
    operation_retention_seconds: float = Field(86_400.0, gt=0, description="how long an operation's answer is kept (W)")
    gate: GateSettings = Field(default_factory=GateSettings, description="settings of the gate, by their own names")
    operations_max: int = Field(
        5_000_000,
        ge=10,
        description="operations remembered at once; the last tenth is for what ends something, which is never refused",
    )
    tenant_gpus_default: int = Field(
        0, ge=0, description="GPUs that a new tenant may hold where the operator names no limit"
    )
    tenant_operations_max: int = Field(
        1_000_000, ge=1, description="operations of a tenant that are remembered, where no operator has set its limit"
    )
    tenant_reservations_max: int = Field(10_000, ge=0, description="live reservations of a tenant, likewise")
    tenant_holds_max: int = Field(5_000, ge=0, description="holds of a tenant that wait for their deadline, likewise")
    tenant_ssh_keys_max: int = Field(1_000, ge=0, description="SSH keys of a tenant, likewise")
    tenant_api_keys_max: int = Field(
        1_000, ge=0, description="API keys of a tenant that are neither revoked nor expired, likewise"
    )
    tenant_members_max: int = Field(1_000, ge=0, description="members and open invitations of a tenant, likewise")
    hold_seconds_max: float = Field(3_600.0, ge=1, le=3_600, description="longest TTL of a hold")
    window_seconds_max: float = Field(
        157_680_000.0, ge=60, description="how far away a window may begin, and how long it may be if it has an end"
    )
    reservation_retention_seconds: float = Field(
        604_800.0, ge=0, le=3_153_600_000, description="how long a reservation that has ended can be read"
    )
    reservations_max: int = Field(100_000, ge=1, description="live reservations; beyond it `reservation_table_full`")
    holds_max: int = Field(
        50_000, ge=1, description="holds that wait for their deadline; beyond it `expiration_index_full`"
    )
    resources_max: int = Field(100_000, ge=0, description="registered resources; beyond it `resource_table_full`")
    shard: int = Field(0, ge=0, le=2**63 - 1, description="upper half of reservations' ids; one for each cell")
    units_seconds_max: float = Field(
        3_600.0,
        gt=0,
        le=31_536_000,
        description="longest wait of a start for units that an allocation that overran is still on, or for a silent node",
    )
    rescues_allowed: bool = Field(
        False,
        description="whether tenants may order a rescue; first every API, worker, site's agent and deploy medium is to know it",
    )
    sandbox_allowed: bool = Field(
        False, description="whether nodes whose driver is `sandbox` or `noop`, which use no real GPU, may come online"
    )
    fault_labels_allowed: bool = Field(
        False, description="whether labels `berth.fault/...` throw the sandbox's fault switches; never in production"
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _require_networks(cls, networks: list[str]) -> list[str]:
        for network in networks:
            ip_network(network)
        return networks

    def feed_limits(self) -> FeedLimits:
        """The bounds that the feed obeys."""
        return FeedLimits(
            subscribers_max=self.feed_subscribers_max,
            tenant_subscribers_max=self.feed_tenant_subscribers_max,
            buffer_bytes_max=self.feed_buffer_bytes_max,
            tenant_bytes_max=self.feed_tenant_bytes_max,
            bytes_max=self.feed_bytes_max,
            keepalive_seconds=self.feed_keepalive_seconds,
            stall_seconds=self.feed_stall_seconds,
            checkpoint_seconds=self.feed_checkpoint_seconds,
            readers_max=self.feed_readers_max,
        )

    def tenant_rows_max(self) -> dict[str, int]:
        """The defaults of each tenant's quotas of rows that triggers count, by the name of the quota."""
        counted = (Quota.OPERATIONS, Quota.RESERVATIONS, Quota.HOLDS)
        return {quota.value: self.quota_defaults()[quota] for quota in counted}

    def quota_defaults(self) -> dict[Quota, int]:
        """Each tenant's limits where no operator has set them."""
        return {
            Quota.OPERATIONS: self.tenant_operations_max,
            Quota.RESERVATIONS: self.tenant_reservations_max,
            Quota.HOLDS: self.tenant_holds_max,
            Quota.WEBHOOKS: self.webhooks_max,
            Quota.SUBSCRIPTIONS: self.notifications_subscriptions_max,
            Quota.RETENTION_POLICIES: self.retention_policies_max,
            Quota.SSH_KEYS: self.tenant_ssh_keys_max,
            Quota.API_KEYS: self.tenant_api_keys_max,
            Quota.MEMBERS: self.tenant_members_max,
            Quota.KV_KEYS: self.kv_namespace_keys_max,
            Quota.KV_BYTES: self.kv_namespace_bytes_max,
            Quota.LOG_BYTES_PER_DAY: self.kv_log_bytes_per_day_max,
            Quota.STREAMS: self.feed_tenant_subscribers_max,
        }

    def socket_limits(self) -> SocketLimits:
        """The bounds that a socket of notifications obeys."""
        return SocketLimits(
            messages_per_second_max=self.notifications_messages_per_second_max,
            recheck_seconds=self.notifications_recheck_seconds,
            ack_seconds=self.notifications_ack_seconds,
        )

    def subscription_retention(self) -> SubscriptionRetention:
        """How long a named subscription keeps the log."""
        return SubscriptionRetention(self.notifications_kept_seconds, self.notifications_kept_versions_max)

    def limits(self) -> Limits:
        """The bounds that commands obey."""
        return Limits(
            requested_seconds_max=self.requested_seconds_max,
            lost_after_seconds=self.lost_after_seconds,
            lost_release_seconds=self.lost_release_seconds,
            fault_reports_per_day_max=self.fault_reports_per_day_max,
            rescues_allowed=self.rescues_allowed,
            provision_seconds_max=self.provision_seconds_max,
            release_seconds_max=self.release_seconds_max,
            release_attempts_max=self.release_attempts_max,
            operation_retention_seconds=self.operation_retention_seconds,
            hold_seconds_max=self.hold_seconds_max,
            window_seconds_max=self.window_seconds_max,
            reservation_retention_seconds=self.reservation_retention_seconds,
            reservations_max=self.reservations_max,
            holds_max=self.holds_max,
            resources_max=self.resources_max,
            shard=self.shard,
            units_seconds_max=self.units_seconds_max,
        )
