"""Every setting of the issuer, read once at start from `BERTH_*` environment variables."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from berth.process.server_addresses import DatabaseUrl


class IssuerSettings(BaseSettings):
    """Addresses, files and bounds of the one process that holds the key of the node CA. Durations are seconds."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    database_url: DatabaseUrl = Field(
        description="postgresql:// address of the database; beyond this machine sslmode is verify-full if none is given"
    )
    trust_domain: str = Field("berth.local", description="SPIFFE trust domain of node identities")
    node_ca_certificate_file: Path = Field(description="PEM certificate of the node CA that signs")
    node_ca_key_file: Path = Field(description="PEM key of the node CA; no other process may have it")
    deploy_ca_certificate_file: Path | None = Field(
        None, description="PEM certificate of the CA of deploy systems; default: none are issued"
    )
    deploy_ca_key_file: Path | None = Field(
        None, description="PEM key of the CA of deploy systems, which no node CA has; no other process may have it"
    )
    node_certificate_seconds: float = Field(86_400.0, gt=0, description="life of a node certificate")
    issuer_poll_seconds: float = Field(0.05, gt=0, le=5, description="pause between reads of the pending requests")
    metrics_host: str = Field("127.0.0.1", description="address of the metrics and health listener")
    metrics_port: int | None = Field(None, ge=1, le=65535, description="port of the metrics and health listener")
    lock_timeout_seconds: float = Field(5.0, gt=0, description="how long a request waits for a row")
    transaction_timeout_seconds: float = Field(30.0, gt=0, description="longest transaction")
    startup_seconds_max: float = Field(60.0, gt=0, description="how long to wait for the database at start")
