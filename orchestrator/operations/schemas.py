"""Status queries of operations, and their responses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from orchestrator.http.types.numbers import BigCount, HttpStatus
from orchestrator.operations.states import OperationState


def _text_of_a_time(value: Any) -> Any:
    """A number is no time here, although it could be read as one."""
    if isinstance(value, str) and "T" not in value.upper():
        raise PydanticCustomError("datetime_parsing", "must be a date and time with an offset, as RFC 3339 has it")
    return value


class OperationQuery(BaseModel):
    """`since`: when the key was first sent, by the client's clock."""

    model_config = ConfigDict(extra="forbid")

    since: Annotated[AwareDatetime, BeforeValidator(_text_of_a_time)] | None = None


class Operation(BaseModel):
    """The state of an operation. `status`, `code` and `result` are its stored answer, once there is one.

    `version`: position in the log of the operation's last event. Null if no operation is stored under the key, and while
    its event is not sequenced.

    `definite`: whether this can still change: false for `pending`, and for `retired`, where it is no longer known
    whether it was done.
    """

    key: str
    state: OperationState
    definite: bool
    detail: str
    status: HttpStatus | None
    code: str | None
    result: Any
    version: BigCount | None
    subject_id: UUID | None
    created_at: datetime | None
    retire_after: datetime | None
    server_time: datetime
