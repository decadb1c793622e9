"""Reads of JSON that a BMC sent, in whatever shape: a typed value, nothing, or AnswerUnreadable. Never a traceback."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from berth.process.json_objects import JsonObject
from node_agent.redfish.problems import AnswerUnreadable

TEXT_CHARACTERS_MAX: Final = 1024
LIST_ITEMS_MAX: Final = 1000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")
_ETAG: Final = re.compile(r"[\x21-\x7e]+")
_MESSAGE_ID: Final = re.compile(r"[A-Za-z0-9_.]{1,100}")
_PROPERTY: Final = re.compile(r"#?[A-Za-z0-9_/]{1,100}")


class Document:
    """A JSON object at `path`, with its ETag if it has one."""

    def __init__(self, path: str, data: JsonObject, etag: str | None = None) -> None:
        self.path = path
        self.data = data
        inside = self.text("@odata.etag")
        self.etag = etag or (inside if _ETAG.fullmatch(inside) else None)

    def text(self, *keys: str) -> str:
        """The text at `keys`, without control characters, cut to 1,024 characters; empty if there is none."""
        return clean(self._at(keys))

    def number(self, *keys: str) -> float | None:
        """The finite number of at least 0 at `keys`; None if there is none. Text of digits counts as a number."""
        value = self._at(keys)
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            return float(value) if math.isfinite(value) and value >= 0 else None
        except OverflowError:
            return None

    def flag(self, *keys: str) -> bool | None:
        """True or false at `keys`; None if it is neither."""
        value = self._at(keys)
        return value if isinstance(value, bool) else None

    def texts(self, *keys: str) -> tuple[str, ...]:
        """The texts in the list at `keys`; empty if there is no list."""
        value = self._at(keys)
        return tuple(clean(item) for item in value[:LIST_ITEMS_MAX] if clean(item)) if isinstance(value, list) else ()

    def part(self, *keys: str) -> Document:
        """The object at `keys`; an empty one if there is none."""
        value = self._at(keys)
        return Document(self.path, value if isinstance(value, dict) else {})

    def parts(self, *keys: str) -> Iterator[Document]:
        """The objects in the list at `keys`. Raises AnswerUnreadable if something else is there."""
        value = self._at(keys)
        if value is None:
            return
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value[:LIST_ITEMS_MAX]):
            raise AnswerUnreadable(f"{'/'.join(keys)} of {self.path} is not a list of objects")
        for item in value[:LIST_ITEMS_MAX]:
            yield Document(self.path, item)

    def link(self, *keys: str) -> str | None:
        """The link (`@odata.id`) at `keys`; None if there is none."""
        return self.text(*keys, "@odata.id") or None

    def _at(self, keys: tuple[str, ...]) -> Any:
        value: Any = self.data
        for key in keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value


def clean(value: Any) -> str:
    """Text that is safe to store and print; empty for what is not text."""
    if not isinstance(value, str):
        return ""
    printable = _CONTROL.sub(" ", value[:TEXT_CHARACTERS_MAX]).strip()
    return printable.encode("utf-8", "replace").decode("utf-8")


def parse(path: str, body: bytes) -> JsonObject:
    """The JSON object of a body. Raises AnswerUnreadable if it is something else."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AnswerUnreadable(f"the answer of {path} is not JSON") from error
    if not isinstance(data, dict):
        raise AnswerUnreadable(f"the answer of {path} is JSON, but not an object")
    return data


def messages(data: JsonObject, *keys: str) -> tuple[Document, ...]:
    """The messages of an error or a task; empty if there are none in the expected shape."""
    try:
        return tuple(Document("", data).parts(*keys))[:20]
    except AnswerUnreadable:
        return ()


def message_ids(found: tuple[Document, ...]) -> tuple[str, ...]:
    """Ids and property names of messages. Never their text, which may repeat a password or a medium's URL."""
    ids = []
    for message in found:
        name = message.text("MessageId")
        about = [item for item in message.texts("RelatedProperties")[:5] if _PROPERTY.fullmatch(item)]
        if _MESSAGE_ID.fullmatch(name):
            ids.append(f"{name} ({', '.join(about)})" if about else name)
    return tuple(ids)
