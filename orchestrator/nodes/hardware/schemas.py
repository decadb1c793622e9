"""Hardware by serial number: places, history, repairs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Path
from pydantic import BaseModel, Field

from orchestrator.http.fields import Request, Sentence
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.numbers import Count
from orchestrator.nodes.hardware.rules import SERIAL, Happened, Kind

Serial = Annotated[str, Field(pattern=SERIAL, max_length=64)]
SerialPath = Annotated[
    str, Path(pattern=SERIAL, max_length=64, description="serial number; other characters than these are spelt `_`")
]


class HardwarePlace(BaseModel):
    """Where a GPU or disk is, as its node reports it."""

    serial: str
    kind: Kind
    model: str | None
    node_id: UUID
    slots: list[Count] = Field(description="slots that this GPU is; empty: a disk, or a GPU that is no slot")
    positions: list[str] = Field(description="PCI addresses of a GPU, names of a disk")
    since: datetime
    missing_since: datetime | None = Field(description="no node reports it any more; null: it is there")
    contested_since: datetime | None = Field(description="another node reports the same serial number; null: none does")


class Repair(BaseModel):
    """A repair of a GPU or disk."""

    id: UUID
    serial: str
    kind: Kind
    reason: str
    opened_at: datetime
    opened_by: str
    closed_at: datetime | None = Field(description="null: it is open")
    closed_by: str | None
    result: str | None


class Hardware(BaseModel):
    """A GPU or disk. More than one place that is not missing: the nodes contradict each other."""

    serial: str
    kind: Kind
    contested: bool
    places: list[HardwarePlace]
    open_repair: Repair | None


class HardwareEntry(BaseModel):
    """What happened to a GPU or disk, and where it was then."""

    id: UUID
    serial: str
    kind: Kind
    happened: Happened
    happened_at: datetime
    node_id: UUID | None
    slots: list[Count]
    actor: str
    detail: str
    evidence: str | None
    reference: UUID | None = Field(description="the quarantine, fault report or repair")
    contested: bool = Field(description="another node reported the same serial number at that time")


class OpenRepair(Request):
    """Which piece is repaired, and why."""

    serial: Serial
    reason: Sentence


class CloseRepair(Request):
    """The result of the repair, on the record."""

    result: Sentence


class HardwareQuery(PageQuery):
    """Which places."""

    node_id: UUID | None = None
    kind: Kind | None = None
    contested: bool = Field(False, description="only serial numbers that several nodes report")
    missing: bool = Field(False, description="only what no node reports any more")


class RepairQuery(PageQuery):
    """Which ones; with `every`, also closed ones."""

    serial: Serial | None = None
    every: bool = False
