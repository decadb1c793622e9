"""Retention policies as the API takes and shows them (docs/retention.md)."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from orchestrator.api.schemas.fields import Request
from orchestrator.api.schemas.transactions import LogVersion


class PutRetentionPolicy(Request):
    """What is to be kept."""

    prevent_truncate: LogVersion = Field(description="This version of the log and higher ones are kept")


class RetentionPolicy(BaseModel):
    """What is kept."""

    policy_id: str
    prevent_truncate: int = Field(description="As it was put")
    kept_from: int = Field(
        description="From which version on it keeps the log: a tenant's policy holds a bounded number of versions"
    )
    created_at: datetime
    updated_at: datetime
