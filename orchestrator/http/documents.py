"""Parts of responses that several nouns return."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field


class Failure(BaseModel):
    """A failure: its stable code, and the next step (docs/reference/failures.md)."""

    code: str
    detail: str | None
    next_step: str | None


class Waits(BaseModel):
    """What the object waits for, since when, and until when (P9)."""

    model_config = ConfigDict(populate_by_name=True)

    for_: str = Field(alias="for")
    since: datetime
    until: datetime | None


class Actor(BaseModel):
    """The cause of a change: its kind and id."""

    kind: str
    id: str | None
