"""Types of fields and base models of the messages between nodes and the control plane."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from prometheus_client import Counter
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
)

from berth.process.bounded_models import BoundedModel

STORABLE = r"^[^\x00]*$"  # PostgreSQL's text and jsonb cannot hold U+0000
INTEGER_MAX = 2**53 - 1  # what every JSON implementation carries exactly (RFC 8259 §6)


def whole(value: Any) -> Any:
    """JSON has one kind of number: 8.0 is the integer 8 (JSON Schema 2020-12, §6.1.1). 8.5, "8" and true are not."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _no_number(value: Any) -> Any:
    if isinstance(value, int | float):
        raise ValueError("must be text")
    return value


def _in_utc(moment: datetime) -> datetime:
    """RFC 3339 has offsets up to 23:59, PostgreSQL up to 15:59. At the ends of what Python represents the offset is left out."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return moment.replace(tzinfo=UTC)


def first_error(error: ValidationError, whole: str = "result") -> str:
    """Where a message is wrong, and how: `gpus.0.address: ...`. `whole` names the message itself."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"


Whole = Annotated[int, Field(strict=True, ge=0, le=INTEGER_MAX), BeforeValidator(whole)]
Truth = Annotated[bool, Field(strict=True)]
"""A proof is true or false, not "yes" or 1."""
Instant = Annotated[AwareDatetime, BeforeValidator(_no_number), AfterValidator(_in_utc)]
"""RFC 3339 text, in UTC once it is read; a number would be taken for seconds since 1970."""
Seconds = Annotated[float, Field(strict=True, ge=0)]
Features = Annotated[
    list[Annotated[str, Field(max_length=32, pattern=r"^[a-z][a-z0-9_]*$")]], Field(max_length=32), FailFast()
]


class Closed(BaseModel):
    """Immutable, and closed to unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Exact(Closed, BoundedModel):
    """What must be read in full or not at all: statements and keys that are trusted, orders to machines, answers of helpers.

    An unknown member is refused; an object with far more members than fields is refused as a whole.
    """


class Wire(BoundedModel):
    """A message, or a part of one: immutable. Members that a newer version adds are ignored, and counted (`UNKNOWN_MEMBERS`).

    An object with far more members than fields is refused as a whole. JSON text that is validated without parsing it first is
    neither counted nor bounded: pass `extra="forbid"` there, and parse what is refused.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def examine(cls, value: Any) -> Any:
        """The value without its unknown members, which are counted. Pydantic asks twice for a model inside another one."""
        value = super().examine(value)
        if not isinstance(value, dict) or value.keys() <= cls.model_fields.keys():
            return value
        known = {name: member for name, member in value.items() if name in cls.model_fields}
        UNKNOWN_MEMBERS.labels(cls.__name__).inc(len(value) - len(known))
        return known


UNKNOWN_MEMBERS = Counter(
    "berth_wire_unknown_members_total", "Members of messages that this version does not know, by message", ["message"],
    registry=None,
)  # fmt: skip
"""Of this process; each process registers it in its registry."""


class FromServer(BaseModel):
    """An answer to the agent: immutable, and open to fields that a newer control plane adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")
