"""Keys, values and transactions as the API accepts and returns them. Binary data is padded base64 (RFC 4648 §4)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from berth.process.bounded_models import items_of
from berth.process.json_objects import JsonObject
from orchestrator.http.fields import Request
from orchestrator.http.paging import LIMIT_DEFAULT, LIMIT_MAX, Cursor
from orchestrator.http.types.numbers import BigCount
from orchestrator.log.schemas import VERSION_BOUND, LogVersion
from orchestrator.log.version_parameters import VERSION_MAX

REQUEST_ID_LENGTH_MIN: Final = 20
"""The setting's default, named in the OpenAPI document."""
ITEMS_MAX: Final = 10_000
"""The largest bound that the settings may set."""
_BASE64 = r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_BASE64URL = r"([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}(==)?|[A-Za-z0-9_-]{3}=?)?"
BASE64URL_LENGTH_MAX: Final = 2_740

Bytes = Annotated[str, Field(pattern=f"^{_BASE64}$", description="Base64 (RFC 4648 §4), padded")]
Key = Annotated[
    str, Field(pattern=f"^{_BASE64}$", min_length=4, description="Base64 (RFC 4648 §4), padded; at least one byte")
]
Base64Url = Annotated[
    str,
    Field(
        pattern=f"^{_BASE64URL}$", max_length=BASE64URL_LENGTH_MAX,
        description="Base64url (RFC 4648 §5), with or without padding",
    ),
]  # fmt: skip


class _Item(BaseModel):
    """An item of a transaction; `items_of` counts its members, at less cost than each item by itself."""

    model_config = Request.model_config


class PointRead(_Item):
    """Satisfied if the key has not changed since the version."""

    type: Literal["point_read"]
    version: LogVersion | None = None
    key: Key


class RangeRead(_Item):
    """Satisfied if no key in `[begin, end)` was changed, created or deleted since the version."""

    type: Literal["range_read"]
    version: LogVersion | None = None
    begin: Bytes
    end: Key


class WriteKey(_Item):
    """Set the key to the value."""

    type: Literal["write"]
    key: Key
    value: Bytes


class DeleteKey(_Item):
    """Delete the key."""

    type: Literal["delete"]
    key: Key


class DeleteRange(_Item):
    """Delete every key in `[begin, end)`."""

    type: Literal["range_delete"]
    begin: Bytes
    end: Key


class CommitTransaction(Request):
    """A transaction. If every precondition is satisfied, the operations are applied in order."""

    request_id: str | None = Field(
        None, pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$",
        json_schema_extra={"minLength": REQUEST_ID_LENGTH_MIN},
        description="The idempotency key, if the header has none; drawn by the server if neither has",
    )  # fmt: skip
    leader_id: str | None = Field(
        None, max_length=100, description="The transaction is not committed under another leader"
    )
    read_version: LogVersion | None = Field(None, description="The version of preconditions without one")
    preconditions: Annotated[
        list[Annotated[PointRead | RangeRead, Field(discriminator="type")]], Field(max_length=ITEMS_MAX), FailFast(),
        items_of(PointRead, RangeRead),
    ] = Field(default_factory=list)  # fmt: skip
    operations: Annotated[
        list[Annotated[WriteKey | DeleteKey | DeleteRange, Field(discriminator="type")]], Field(max_length=ITEMS_MAX),
        FailFast(), items_of(WriteKey, DeleteKey, DeleteRange),
    ] = Field(default_factory=list)  # fmt: skip


class CommitOutcome(BaseModel):
    """The outcome of a transaction."""

    status: Literal["committed", "not_committed"]
    conflicts: list[JsonObject] = Field(description="The preconditions that were not satisfied")
    version: BigCount = Field(description="The transaction's version; if not committed, a newer version to read at")
    leader_id: str
    request_id: str


class CommitStatus(BaseModel):
    """The outcome of a request_id that is no longer in progress."""

    status: Literal["committed", "id_not_found", "log_truncated"]
    version: BigCount | None
    leader_id: str | None


class StatusQuery(BaseModel):
    """The query of a transaction's status."""

    model_config = ConfigDict(extra="forbid")

    request_id: str = Field(min_length=1, max_length=255, pattern=r"^[\x20-\x7e]+$")
    min_version: int = Field(ge=0, le=VERSION_MAX, json_schema_extra=VERSION_BOUND)


class KeyValue(BaseModel):
    """A key and its value. `version`: of its last change; null if the log has dropped it."""

    key: Key
    value: Bytes
    version: BigCount | None


class KeyRead(KeyValue):
    """A key and its value, read at a version."""

    read_version: BigCount
    leader_id: str


class RangeQuery(BaseModel):
    """The query of a range `[begin, end)`; by default all keys."""

    model_config = ConfigDict(extra="forbid")

    begin: Base64Url = ""
    end: Base64Url | None = None
    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX)
    cursor: Cursor = None


class KeyRange(BaseModel):
    """A page of a range, read at a version."""

    items: list[KeyValue]
    next_cursor: str | None
    read_version: BigCount
    leader_id: str
