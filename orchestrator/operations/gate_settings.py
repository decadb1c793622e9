"""Settings of the gate (orchestrator/edge/gate.py): names and defaults of AD-40, Part 8, and `max_bytes`."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

DAY_SECONDS = 86_400.0


class GateSettings(BaseSettings):
    """Durations are seconds. They govern what a process remembers, never what the database does."""

    model_config = SettingsConfigDict(env_prefix="IDEMPOTENCY_", extra="ignore")

    pending_ttl_seconds: float = Field(
        60.0,
        gt=0,
        le=DAY_SECONDS,
        description="how old a first attempt may be that duplicates wait for; beside an older one they ask the database",
    )
    committed_ttl_seconds: float = Field(
        300.0,
        gt=0,
        le=DAY_SECONDS,
        description="how long the answer to what was done is remembered; never longer than the database keeps it",
    )
    rejected_ttl_seconds: float = Field(
        60.0,
        gt=0,
        le=DAY_SECONDS,
        description="how long a refusal is remembered; never longer than the database keeps it",
    )
    max_entries: int = Field(100_000, ge=1, le=10_000_000, description="operations that a process knows at once")
    max_bytes: int = Field(
        67_108_864, ge=1_048_576, description="memory of what a process knows; the least recently used is let go"
    )
    cleanup_interval_seconds: float = Field(
        10.0, gt=0, le=DAY_SECONDS, description="how often answers whose time is over are let go"
    )
    wait_for_pending: bool = Field(
        True, description="whether a duplicate waits for the first attempt, rather than receiving 409 at once"
    )
    pending_wait_timeout: float = Field(
        30.0, gt=0, le=3_600, description="longest wait of a duplicate; then 409 `operation_in_progress`"
    )
