"""Lists by cursor: bounded pages, opaque cursors that are bound to their list (docs/reference/http-api.md, "Lists").

A cursor names the last item of the page before it, so a list may grow or shrink meanwhile without returning an item twice.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Generic, TypeVar
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field

from berth.process.json_objects import JsonObject
from orchestrator.problems import InvalidCursor

CURSOR_LENGTH_MAX: Final = 1_000
LIMIT_MAX: Final = 500
LIMIT_DEFAULT: Final = 100

Item = TypeVar("Item")
Place = TypeVar("Place")

Cursor = Annotated[
    str | None,
    Field(
        max_length=CURSOR_LENGTH_MAX,
        json_schema_extra={"description": "`next_cursor` of the page before", "pattern": "^[A-Za-z0-9_-]+$"},
    ),
]


class PageQuery(BaseModel):
    """The query of a list. Unknown parameters are refused, so that a misspelt filter is an error and never silence."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX)
    cursor: Cursor = None


class Page(BaseModel, Generic[Item]):
    """One page; `next_cursor` is null on the last one."""

    items: list[Item]
    next_cursor: str | None


def place_after(cursor: str | None, kind: str, parse: Callable[[str], Place], start: Place) -> Place:
    """Where the page begins: what the cursor of a list of this `kind` names, or `start`. Raises `InvalidCursor`."""
    if cursor is None:
        return start
    try:
        found = orjson.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
        if found["list"] != kind or not isinstance(found["after"], str):
            raise ValueError(found)
        return parse(found["after"])
    except (binascii.Error, ValueError, TypeError, KeyError) as error:
        raise InvalidCursor("the cursor is not one that this list gave out") from error


def cursor_after(kind: str, place: object) -> str:
    """The cursor of the page that begins after `place`."""
    return base64.urlsafe_b64encode(orjson.dumps({"list": kind, "after": str(place)})).rstrip(b"=").decode()


def page_of(found: Sequence[Item], limit: int, kind: str, place: Callable[[Item], object]) -> JsonObject:
    """A page from what was found when `limit + 1` items were asked for: the extra one shows that there are more."""
    items = found[:limit]
    more = len(found) > limit
    return {"items": items, "next_cursor": cursor_after(kind, place(items[-1])) if more else None}


def bounded_integer(text: str) -> int:
    """A place that is a bigint; raises ValueError for anything that Postgres could not hold."""
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError(text)
    return number


def bounded_text(text: str) -> str:
    """A place that is a name; raises ValueError for what Postgres's text cannot hold."""
    if "\x00" in text:
        raise ValueError(text)
    text.encode()
    return text


FIRST_ID: Final = UUID(int=0)


def identified_page(query: PageQuery, kind: str) -> tuple[UUID, int]:
    """For a list by id: the id to begin after, and how many items to ask for. Raises `InvalidCursor`."""
    return place_after(query.cursor, kind, UUID, FIRST_ID), query.limit + 1


def named_page(query: PageQuery, kind: str) -> tuple[str, int]:
    """For a list by name: the name to begin after, and how many items to ask for. Raises `InvalidCursor`."""
    return place_after(query.cursor, kind, bounded_text, ""), query.limit + 1


def numbered_page(query: PageQuery, kind: str) -> tuple[int, int]:
    """For a list by number: the number to begin after, and how many items to ask for. Raises `InvalidCursor`."""
    return place_after(query.cursor, kind, bounded_integer, 0), query.limit + 1
