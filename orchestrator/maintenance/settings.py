"""Settings of maintenance windows."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class MaintenanceSettings(BaseSettings):
    """The bound of windows."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    maintenance_windows_max: int = Field(
        10_000, ge=1, le=1_000_000,
        description="maintenance windows that are scheduled or active at once; beyond it `maintenance_table_full`",
    )  # fmt: skip
