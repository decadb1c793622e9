"""Consumers of the log as operators see them (docs/retention.md)."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from orchestrator.api.schemas.fields import Request, Sentence


class LogConsumer(BaseModel):
    """Who keeps its position in the log in Postgres."""

    consumer: str
    version: int = Field(description="Everything up to it is done; what follows is kept for it")
    updated_at: datetime = Field(description="When it came that far")


class ForgetConsumer(Request):
    """Why nothing need be kept for it; for the record."""

    reason: Sentence
