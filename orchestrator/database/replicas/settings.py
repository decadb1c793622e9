"""Settings of reads that a standby may serve."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from berth.process.server_addresses import StandbyUrl


class ReplicaSettings(BaseSettings):
    """Where the standbys are, and how far behind they may be."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    read_database_url: StandbyUrl | None = Field(
        None,
        description="standbys that serve lists, availability and the feed's catch-up, with "
        "target_session_attrs=standby; default: the primary serves all",
    )
    read_database_pool_size: int = Field(8, ge=1, le=200, description="connections of each process to standbys")
    read_lag_seconds_max: float = Field(
        10.0, ge=3, le=3_600, description="how far a standby may be behind; beyond it the primary serves its reads"
    )
    read_wait_seconds_max: float = Field(
        0.1,
        ge=0,
        le=5,
        description="how long a read waits for a standby to reach `min_version` before the primary serves it",
    )
