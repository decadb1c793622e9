"""One request to the API as a value: what to send and how to read the response. No sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter

from berth.client.models import Page
from berth.process.json_objects import JsonMapping

Result = TypeVar("Result")
Item = TypeVar("Item", bound=BaseModel)

Params = Mapping[str, str | int | list[str] | None]


@dataclass(frozen=True)
class Call(Generic[Result]):
    """A request. `answer` validates the response's body; an empty body (204) is None."""

    method: str
    path: str
    answer: TypeAdapter[Result]
    params: Params = field(default_factory=dict)
    body: JsonMapping | None = None
    idempotency_key: str | None = None

    @property
    def writes(self) -> bool:
        """Whether the call changes something, and so carries an idempotency key."""
        return self.method != "GET"

    @property
    def query(self) -> dict[str, str | int | list[str]]:
        """The parameters that are set."""
        return {name: value for name, value in self.params.items() if value is not None}

    def after(self, cursor: str) -> Call[Result]:
        """The same call for the page that begins at `cursor`."""
        return replace(self, params={**self.params, "cursor": cursor})


def segment(text: str) -> str:
    """The text as one segment of a path, dots included: a segment of dots alone would mean a parent directory."""
    return quote(text, safe="").replace(".", "%2E")


def written(moment: datetime | None) -> str | None:
    """A time as RFC 3339. One without a time zone is this machine's local time."""
    return None if moment is None else moment.astimezone(UTC).isoformat()


def read(path: str, model: type[Result], **params: str | int | list[str] | None) -> Call[Result]:
    """A GET that returns one object."""
    return Call("GET", path, TypeAdapter(model), params)


def read_page(path: str, model: type[Item], **params: str | int | None) -> Call[Page[Item]]:
    """A GET that returns a page of objects."""
    return Call("GET", path, TypeAdapter(Page[model]), params)  # type: ignore[valid-type]


def write(
    method: str, path: str, model: type[Result], body: JsonMapping | None, key: str | None, **params: str | None
) -> Call[Result]:
    """A write that returns the object it changed. Members of `body` that are None are left out."""
    sent = {} if body is None else {name: value for name, value in body.items() if value is not None}
    return Call(method, path, TypeAdapter(model), params, sent, key)


def remove(path: str, key: str | None) -> Call[None]:
    """A DELETE with an empty response."""
    return Call("DELETE", path, TypeAdapter(None), idempotency_key=key)
