"""Settings of four eyes."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ApprovalSettings(BaseSettings):
    """Whether actions need a second operator, and the bounds of the requests that wait for one."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    four_eyes: bool = Field(
        False,
        description="whether force-cleanup and changes of operators' API keys take effect only when a second operator approves",
    )
    approval_seconds: float = Field(
        86_400.0, ge=1, le=2_592_000, description="how long a request waits for the second operator before it expires"
    )
    approvals_max: int = Field(
        1_000, ge=1, le=100_000, description="requests that wait at once; beyond it `approval_table_full`"
    )
