"""Every setting of the orchestrator, read once at start from `BERTH_*` environment variables."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from orchestrator.execution import Limits


class Settings(BaseSettings):
    """Addresses, files and bounds. Durations are seconds, sizes bytes."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    database_url: str = Field(description="postgresql:// address of the control plane's database")
    database_pool_size: int = Field(8, ge=1, le=200, description="connections each process may hold")
    database_reserve_size: int = Field(
        2,
        ge=1,
        le=50,
        description="connections beside these that only releases, cancels, confirms and results may take",
    )
    lock_timeout_seconds: float = Field(5.0, gt=0, description="how long a request waits for a row")
    transaction_timeout_seconds: float = Field(30.0, gt=0, description="longest transaction")

    public_host: str = Field("127.0.0.1", description="address of the public listener")
    public_port: int = Field(8080, ge=1, le=65535, description="port of the public listener")
    node_host: str = Field("127.0.0.1", description="address of the node listener")
    node_port: int = Field(8443, ge=1, le=65535, description="port of the node listener")
    node_api_url: str = Field("https://127.0.0.1:8443", description="where nodes reach the node listener")
    metrics_host: str = Field("127.0.0.1", description="address of the metrics and health listener")
    metrics_port: int | None = Field(None, ge=1, le=65535, description="port of the metrics and health listener")
    graceful_stop_seconds: int = Field(3, ge=0, description="how long requests may run on after SIGTERM")
    startup_seconds_max: float = Field(60.0, gt=0, description="how long to wait for the database at start")
    otlp_endpoint: str | None = Field(None, description="http(s):// address of an OTLP collector; default: no traces")
    trace_sample_ratio: float = Field(1.0, ge=0, le=1, description="share of allocations that are traced")

    trust_domain: str = Field("berth.local", description="SPIFFE trust domain of node identities")
    node_ca_certificate_file: Path | None = Field(None, description="PEM certificate of the node CA")
    node_ca_key_file: Path | None = Field(None, description="PEM key of the node CA; needed where nodes enrol or renew")
    node_tls_certificate_file: Path | None = Field(None, description="PEM server certificate of the node listener")
    node_tls_key_file: Path | None = Field(None, description="PEM key of the node listener")
    task_signing_key_file: Path | None = Field(None, description="PEM Ed25519 key that signs tasks")
    node_certificate_seconds: float = Field(86_400.0, gt=0, description="life of a node certificate")
    enrolment_token_seconds: float = Field(600.0, gt=0, description="default life of an enrolment token")

    body_bytes_max: int = Field(262_144, ge=1024, description="largest request body")
    body_seconds_max: float = Field(10.0, gt=0, description="longest time for a request's body to come whole")
    requests_in_flight_max: int = Field(2_000, ge=1, description="requests served at once; beyond it new ones get 503")
    credential_cache_seconds: float = Field(
        1.0, ge=0, description="how long a checked API key is trusted without asking"
    )
    catalogue_cache_seconds: float = Field(
        1.0, ge=0, description="how long SKUs, images and pools are read from memory"
    )
    create_batch_max: int = Field(32, ge=1, le=256, description="most creates combined in one transaction")
    create_batches_in_flight_max: int = Field(2, ge=1, le=32, description="create transactions at once in a process")
    create_queue_max: int = Field(4_000, ge=1, description="creates waiting for their transaction; beyond it 503")

    task_dispatch_tick_seconds: float = Field(0.015, gt=0, description="how often waiting nodes are served")
    task_dispatch_batch_max: int = Field(256, ge=1, description="most tasks handed out by one statement")

    requested_seconds_max: float = Field(300.0, gt=0, description="longest wait in `requested`")
    provision_seconds_max: float = Field(900.0, gt=0, description="longest wait in `provisioning`")
    release_seconds_max: float = Field(300.0, gt=0, description="longest wait for one release attempt")
    release_attempts_max: int = Field(3, ge=1, description="release attempts before `release_failed`")
    operation_retention_seconds: float = Field(86_400.0, gt=0, description="how long an operation's answer is kept (W)")
    fault_labels_allowed: bool = Field(
        False, description="whether labels `berth.fault/...` throw the sandbox's fault switches; never in production"
    )

    def limits(self) -> Limits:
        """The bounds that commands obey."""
        return Limits(
            requested_seconds_max=self.requested_seconds_max,
            provision_seconds_max=self.provision_seconds_max,
            release_seconds_max=self.release_seconds_max,
            release_attempts_max=self.release_attempts_max,
            operation_retention_seconds=self.operation_retention_seconds,
        )
