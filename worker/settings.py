"""Every setting of the worker, read once at start from `BERTH_*` environment variables."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from berth.process.server_addresses import DatabaseUrl, NatsUrl, TemporalAddress
from berth.process.temporal_connections import TemporalSettings
from orchestrator.networks.rules import NetworkLimits, parse_vlans
from orchestrator.nodes.attestation.rules import OnFailure
from orchestrator.nodes.burn_ins.rules import ReturnPolicy
from orchestrator.nodes.probes.thresholds import Thresholds
from orchestrator.operations.execution import Limits


def _vlans(text: str) -> str:
    parse_vlans(text)
    return text


class Settings(TemporalSettings):
    """Addresses, files and bounds. Durations are seconds."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    database_url: DatabaseUrl = Field(
        description="postgresql:// address of the database; beyond this machine sslmode is verify-full if none is given"
    )
    database_pool_size: int = Field(8, ge=1, le=200, description="connections each process may hold")
    lock_timeout_seconds: float = Field(5.0, gt=0, description="how long a command waits for a row")
    transaction_timeout_seconds: float = Field(30.0, gt=0, le=40, description="longest transaction")
    nats_url: NatsUrl = Field(description="nats:// address of NATS; several, separated by commas")
    nats_ca_file: Path | None = Field(None, description="certificates that verify NATS; default: the system's")
    temporal_address: TemporalAddress = Field(description="host:port of Temporal's frontend")
    temporal_namespace: str = Field("default", min_length=1, description="Temporal namespace")
    temporal_payload_key_file: Path = Field(
        description="keys that encrypt what Temporal stores, base64 of 32 bytes per line: the first encrypts, all decrypt"
    )
    temporal_earlier_payloads_allowed: bool = Field(
        False,
        description="whether payloads that are in the clear or bound to no workflow, as earlier versions wrote them, are read",
    )
    temporal_reload_seconds: float = Field(
        5.0, gt=0, le=3_600, description="how often changed files of the connection to Temporal are searched"
    )
    task_signing_key_file: Path = Field(description="PEM Ed25519 key that signs tasks")
    key_set_file: Path | None = Field(
        None,
        description="the key set that agents get, signed by the root: wipe certificates contain it; read again when it changes",
    )
    metrics_host: str = Field("127.0.0.1", description="address of the metrics and health listener")
    metrics_port: int | None = Field(
        None, ge=0, le=65_535, description="port of the metrics and health listener; default: no listener"
    )
    startup_seconds_max: float = Field(60.0, gt=0, description="how long to wait for each server at start")
    otlp_endpoint: str | None = Field(None, description="http(s):// address of an OTLP collector; default: no traces")
    trace_sample_ratio: float = Field(1.0, ge=0, le=1, description="share of allocations that are traced")

    log_stream_name: str = Field("BERTH_LOG", pattern=r"^[A-Za-z0-9_-]{1,100}$", description="JetStream stream")
    worker_task_queue: str = Field("berth-lifecycle", min_length=1, description="Temporal task queue")
    worker_consumer_name: str = Field(
        "berth-worker",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="durable JetStream consumer, shared by all workers",
    )
    worker_events_in_flight_max: int = Field(32, ge=1, le=1_000, description="events handled at once by a process")
    worker_ack_wait_seconds: float = Field(10.0, gt=0, description="an event unacknowledged for so long is redelivered")
    worker_retry_event_seconds: float = Field(1.0, gt=0, description="pause before a failed event is redelivered")
    worker_retry_event_seconds_max: float = Field(
        30.0, gt=0, description="longest such pause for an event that is refused; the pause doubles with each try"
    )
    worker_event_tries_max: int = Field(
        5, ge=1, le=100, description="tries of an event that is refused before it becomes a dead letter"
    )
    worker_dead_letter_retention_seconds: float = Field(
        30 * 86_400.0, gt=0, description="how long a dead letter is kept after it was retried or discarded"
    )
    worker_pull_heartbeat_seconds: float = Field(
        2.0,
        ge=0.5,
        le=15,
        description="interval of NATS's heartbeats on an idle pull; after 2.5 intervals without one, a new pull",
    )
    worker_position_seconds: float = Field(3.0, gt=0, description="how often the consumer saves its position")
    worker_sticky_seconds: float = Field(
        5.0, gt=0, description="how long a workflow task waits for the worker that caches its workflow"
    )
    worker_step_seconds: float = Field(
        5.0, ge=1, le=60, description="how long a workflow task of a killed worker waits before another worker takes it"
    )
    worker_workflows_cached_max: int = Field(2_000, ge=10, description="workflows kept in memory")
    worker_commands_in_flight_max: int = Field(64, ge=1, description="commands run at once by a process")
    worker_graceful_stop_seconds: float = Field(10.0, ge=0, description="how long commands may run on after SIGTERM")

    metering_tick_seconds: float = Field(0.2, gt=0, description="how often metering reads new events")
    credit_rule: Literal["last_proof_of_life", "noticed", "none"] = Field(
        "last_proof_of_life", description="from when on time without service is credited, once its outage has ended"
    )
    metering_batch_max: int = Field(500, ge=1, le=10_000, description="most events in one of metering's transactions")

    sweep_seconds: float = Field(5.0, gt=0, description="default interval of sweepers")
    console_issue_seconds: float = Field(
        0.2, gt=0, description="interval at which tasks of new console sessions are issued"
    )
    console_dial_seconds: float = Field(
        15.0, gt=0, le=120, description="how long a node's agent has to connect for a console session"
    )
    console_silent_seconds: float = Field(
        30.0, ge=30, description="a console session that its process has not confirmed for so long is ended"
    )
    console_retention_seconds: float = Field(
        2_592_000.0, ge=0, le=3_153_600_000, description="how long an ended console session is kept"
    )
    sweep_grace_seconds: float = Field(10.0, ge=0, description="how far past a deadline a sweeper acts")
    sweep_batch_max: int = Field(100, ge=1, le=1_000, description="most items of one sweep")
    rescue_patience_seconds: float = Field(
        30.0, ge=0, description="a wait older than this is checked before its deadline: does its workflow still run?"
    )
    rescue_seconds: float = Field(15.0, ge=0, description="how often such waits are checked with Temporal")
    temporal_store_seconds: float = Field(
        2.0, gt=0, le=60, description="how often Temporal is asked whether it still has the same store"
    )
    reconcile_seconds: float = Field(15.0, ge=0, description="how often inventories of nodes are compared with claims")
    topology_discover_seconds: float = Field(
        86_400.0, ge=60, description="longest time between two discoveries of a node"
    )
    topologies_seconds: float = Field(30.0, gt=0, description="how often due and ended discoveries are looked up")
    probe_seconds: float = Field(3_600.0, ge=60, description="longest time between two health probes of a node")
    probes_seconds: float = Field(30.0, gt=0, description="how often due and ended health probes are looked up")
    probe_history_max: int = Field(50, ge=1, le=1_000, description="health reports and burn-ins kept of each node")
    burn_in_seconds_max: float = Field(3_600.0, ge=60, le=86_400, description="how long a node has for one burn-in")
    burn_in_return: ReturnPolicy = Field(
        "person",
        description="whether an operator returns slots after a burn-in that passed, or it returns them: `person`, `automatic`",
    )
    attestation_failure: OnFailure = Field(
        OnFailure.REPORT,
        description="what a failed attestation does: `report`, or `quarantine` for an answer that is evidence about the machine",
    )
    probe_thresholds: dict[str, Thresholds] = Field(
        {}, max_length=100,
        description="JSON: thresholds of health that differ from the defaults, by the GPU model of the SKU; `*`: every model",
    )  # fmt: skip
    reconcile_nodes_max: int = Field(500, ge=1, le=10_000, description="nodes compared in one round")
    missing_inventories_min: int = Field(
        3,
        ge=2,
        description="consecutive complete inventories without an active allocation before it is reported missing",
    )
    census_seconds: float = Field(
        15.0, gt=0, description="how often the gauges of allocations, tasks, nodes and GPUs are set"
    )
    log_truncation_seconds: float = Field(60.0, ge=0, description="how often log truncation is attempted")
    log_age_seconds_min: float = Field(
        30 * 86_400.0, ge=0, le=3_153_600_000, description="versions younger than this are never dropped from the log"
    )
    log_versions_min: int = Field(
        1_000_000, ge=1, le=2**62, description="number of newest versions that are never dropped from the log"
    )
    node_silent_seconds: float = Field(30.0, gt=0, description="a node without a heartbeat for so long is offline")
    bmc_silent_seconds: float = Field(
        60.0, gt=0, description="a node without an agent is offline if its BMC did not answer for so long"
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
    provision_seconds_max: float = Field(900.0, gt=0, description="longest wait in `provisioning`")
    provision_attempts_max: int = Field(
        3, ge=1, le=1_000, description="provision attempts after failures that may be temporary"
    )
    provision_retry_first_seconds: float = Field(
        2.0, gt=0, description="pause after the first such failure; doubles with each"
    )
    provision_retry_seconds_max: float = Field(30.0, gt=0, description="longest pause between provision attempts")
    release_seconds_max: float = Field(300.0, gt=0, description="longest wait for one release attempt")
    release_attempts_max: int = Field(3, ge=1, le=1_000, description="release attempts before `release_failed`")
    release_retry_first_seconds: float = Field(
        1.0, gt=0, description="pause after the first release attempt; doubles with each"
    )
    release_retry_seconds_max: float = Field(30.0, gt=0, description="longest pause between release attempts")
    release_graceful_seconds: float = Field(
        10.0, ge=0, le=3_600, description="how long a guest may take to stop before it is destroyed"
    )
    approval_retention_seconds: float = Field(
        7_776_000.0, ge=0, le=3_153_600_000, description="how long an approval that has ended can be read"
    )
    fault_retention_seconds: float = Field(
        15_552_000.0,
        ge=0,
        le=3_153_600_000,
        description="how long a fault report is kept after its units were released",
    )
    hardware_retention_seconds: float = Field(
        157_680_000.0,
        ge=0,
        le=3_153_600_000,
        description="how long the history of a GPU or disk, and its closed repairs, are kept",
    )
    maintenance_retention_seconds: float = Field(
        7_776_000.0, ge=0, le=3_153_600_000, description="how long a maintenance window that has ended can be read"
    )
    reservation_retention_seconds: float = Field(
        604_800.0, ge=0, le=3_153_600_000, description="how long an ended reservation can be read"
    )
    units_seconds_max: float = Field(
        3_600.0,
        gt=0,
        le=31_536_000,
        description="longest wait of a start for units still occupied by an overrunning allocation, or for a silent node",
    )
    ending_notice_seconds: float = Field(
        900.0, ge=0, le=31_536_000, description="how long before an allocation's end `reservation.ending` is emitted"
    )
    network_pool: IPv4Network = Field(
        NetworkLimits().pool,
        description="CIDR from which tenant networks get their subnets; in no network that nodes or tenants use otherwise",
    )
    network_prefix_length: int = Field(
        NetworkLimits().prefix_length, ge=16, le=29, description="prefix length of the subnet of each tenant and region"
    )
    published_port_first: int = Field(
        NetworkLimits().port_first,
        ge=1024,
        le=65_535,
        description="first port of a node that may lead into a tenant network",
    )
    published_port_last: int = Field(
        NetworkLimits().port_last,
        ge=1024,
        le=65_535,
        description="last such port; apart from BERTH_AGENT_SSH_PORT_FIRST to _LAST",
    )
    network_vlans: Annotated[str, AfterValidator(_vlans)] = Field(
        "",
        description="VLANs (`100-999,1200`) of tenant networks on nodes with the uplink `vlan`; used for nothing else",
    )
    network_vlan_quarantine_seconds: float = Field(
        NetworkLimits().vlan_quarantine_seconds,
        ge=0,
        le=31_536_000,
        description="how long a VLAN is leased to no other network once the last guest has left it",
    )
    fault_labels_allowed: bool = Field(
        False, description="whether labels `berth.fault/...` inject faults into the sandbox driver; never in production"
    )

    @model_validator(mode="after")
    def _networks_fit(self) -> Self:
        if self.network_prefix_length < self.network_pool.prefixlen:
            raise ValueError(
                "BERTH_NETWORK_PREFIX_LENGTH is shorter than the prefix of BERTH_NETWORK_POOL: no subnet fits"
            )
        if self.published_port_first > self.published_port_last:
            raise ValueError("BERTH_PUBLISHED_PORT_FIRST is larger than BERTH_PUBLISHED_PORT_LAST: there is no port")
        return self

    def limits(self) -> Limits:
        """The bounds of commands."""
        return Limits(
            requested_seconds_max=self.requested_seconds_max,
            lost_after_seconds=self.lost_after_seconds,
            lost_release_seconds=self.lost_release_seconds,
            provision_seconds_max=self.provision_seconds_max,
            provision_attempts_max=self.provision_attempts_max,
            provision_retry_first_seconds=self.provision_retry_first_seconds,
            provision_retry_seconds_max=self.provision_retry_seconds_max,
            release_seconds_max=self.release_seconds_max,
            release_attempts_max=self.release_attempts_max,
            release_retry_first_seconds=self.release_retry_first_seconds,
            release_retry_seconds_max=self.release_retry_seconds_max,
            release_graceful_seconds=self.release_graceful_seconds,
            reservation_retention_seconds=self.reservation_retention_seconds,
            units_seconds_max=self.units_seconds_max,
            ending_notice_seconds=self.ending_notice_seconds,
            networks=NetworkLimits(
                self.network_pool,
                self.network_prefix_length,
                self.published_port_first,
                self.published_port_last,
                parse_vlans(self.network_vlans),
                self.network_vlan_quarantine_seconds,
            ),
        )
