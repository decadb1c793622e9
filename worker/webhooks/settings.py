"""Every setting of the webhook sender, read once at start from `BERTH_*` environment variables."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from berth.process.server_addresses import DatabaseUrl
from worker.webhooks.dispatching import Bounds


class WebhookSettings(BaseSettings):
    """Addresses, files and bounds. Durations are seconds."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    database_url: DatabaseUrl = Field(
        description="postgresql:// address of the database; beyond this machine sslmode is verify-full if none is given"
    )
    database_pool_size: int = Field(8, ge=1, le=200, description="connections each process may hold")
    lock_timeout_seconds: float = Field(5.0, gt=0, description="how long a command waits for a row")
    transaction_timeout_seconds: float = Field(30.0, gt=0, le=40, description="longest transaction")
    webhook_key_file: Path = Field(
        description="keys that seal webhooks' secrets, base64 of 32 bytes per line: the first seals, all open"
    )
    metrics_host: str = Field("127.0.0.1", description="address of the metrics and health listener")
    metrics_port: int | None = Field(
        None, ge=0, le=65_535, description="port of the metrics and health listener; default: no listener"
    )
    startup_seconds_max: float = Field(60.0, gt=0, description="how long to wait for the database at start")

    webhook_tick_seconds: float = Field(0.5, gt=0, description="how often due webhook deliveries are searched")
    webhook_pending_max: int = Field(
        5_000,
        ge=1,
        le=100_000,
        description="most pending deliveries of a webhook; at the bound its position does not advance",
    )
    webhook_timeout_seconds: float = Field(
        20.0, gt=0, le=60, description="longest delivery attempt, from name resolution to response"
    )
    webhook_attempts_max: int = Field(64, ge=1, le=1_000, description="delivery attempts in flight in a process")
    webhook_tenant_attempts_max: int = Field(
        16, ge=1, le=1_000, description="delivery attempts in flight for one tenant"
    )
    webhook_endpoint_attempts_max: int = Field(
        4, ge=1, le=1_000, description="delivery attempts in flight for one webhook"
    )
    webhook_failing_seconds_max: float = Field(
        5 * 86_400.0, gt=0, description="a webhook whose every attempt failed for so long is disabled"
    )
    webhook_delivery_retention_seconds: float = Field(
        7 * 86_400.0, gt=0, le=3_153_600_000, description="how long a finished delivery can be read and replayed"
    )
    webhook_deliveries_kept_max: int = Field(
        100_000,
        ge=1,
        description="most deliveries kept for a webhook, whatever their age; pending ones are always kept",
    )
    webhook_http_allowed: bool = Field(False, description="whether webhooks may have http:// URLs; for tests only")
    webhook_ports: list[int] = Field(
        [443, 8443], description="ports (JSON list) that webhooks may be sent to; empty: any"
    )
    webhook_private_addresses_allowed: bool = Field(
        False, description="whether webhooks may be sent to private addresses"
    )

    def webhook_bounds(self) -> Bounds:
        """The bounds of the webhook dispatcher."""
        return Bounds(
            tick_seconds=self.webhook_tick_seconds,
            timeout_seconds=self.webhook_timeout_seconds,
            attempts_max=self.webhook_attempts_max,
            tenant_attempts_max=self.webhook_tenant_attempts_max,
            endpoint_attempts_max=self.webhook_endpoint_attempts_max,
            pending_max=self.webhook_pending_max,
            failing_seconds_max=self.webhook_failing_seconds_max,
        )
