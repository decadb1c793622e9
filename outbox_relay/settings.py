"""Every setting of the relay, read once at start from `BERTH_*` environment variables."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from berth.process.server_addresses import DatabaseUrl, NatsUrl


class Settings(BaseSettings):
    """Addresses and bounds. Durations are seconds, sizes bytes or events."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    database_url: DatabaseUrl = Field(
        description="postgresql:// address of the database; beyond this machine sslmode is verify-full if none is given"
    )
    nats_url: NatsUrl = Field(description="nats:// or tls:// address of NATS; several, separated by commas")
    nats_ca_file: Path | None = Field(None, description="certificates that verify NATS; default: the system's")
    metrics_host: str = Field("127.0.0.1", description="address of the metrics and health listener")
    metrics_port: int | None = Field(None, ge=0, le=65_535, description="its port; default: no such listener")

    log_stream_name: str = Field("BERTH_LOG", pattern=r"^[A-Za-z0-9_-]{1,100}$", description="JetStream stream")
    log_stream_replicas: int = Field(1, ge=1, le=5, description="NATS servers that keep each message")
    log_stream_age_seconds_max: float = Field(
        14 * 86_400.0, ge=0, description="how long NATS keeps a message; 0: for ever (Postgres keeps the truth)"
    )
    log_stream_duplicate_window_seconds: float = Field(
        7_200.0, ge=60, description="how long NATS remembers event ids, for streams that mirror or source this one"
    )

    relay_poll_seconds: float = Field(0.008, ge=0.001, le=1.0, description="pause between looks into an empty outbox")
    relay_sequence_batch_max: int = Field(1_000, ge=1, le=10_000, description="most events sequenced in a transaction")
    relay_publish_batch_max: int = Field(
        500, ge=1, le=1_000, description="most events in an atomic batch (NATS: 1,000)"
    )
    relay_publish_batch_bytes_max: int = Field(
        4 * 2**20, ge=1_024, description="a batch is closed at this size, or holds one event"
    )
    relay_publish_timeout_seconds: float = Field(5.0, gt=0, description="how long NATS may take to store a batch")
    relay_step_back_seconds: float = Field(
        1.0, gt=0, le=2.0, description="how often a relay that is not the publisher looks whether another one publishes"
    )
    relay_observe_seconds: float = Field(2.0, gt=0, description="how often the outbox's depth and age are measured")
    relay_backoff_seconds_max: float = Field(2.0, gt=0, description="longest pause between attempts to connect")
    relay_startup_seconds_max: float = Field(60.0, gt=0, description="how long to wait for each server at start")
