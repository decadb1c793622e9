"""A read of a key or a range is the namespace's state at its `read_version`, also while others commit."""

from __future__ import annotations

import base64
from typing import Any

from tests.api.calling import at_once, new_tenant
from tests.keyvalue.committing import Keys, delete, put
from tests.support.public_api import PublicApi

KEY = b"contended"
WRITERS, READERS = 4, 3
WRITES, READS = 25, 60

Change = tuple[int, bytes | None]
"""Version of a commit and the value that it left; None: the commit deleted the key."""
Read = tuple[int, int | None, bytes | None]
"""`read_version`, version of the last change (None: not found), value."""


def state_at(history: list[Change], read_version: int) -> tuple[int | None, bytes | None]:
    """Version and value of the key at a version of the log; (None, None) where it does not exist."""
    last = max((change for change in history if change[0] <= read_version), default=(0, None), key=lambda one: one[0])
    return (None, None) if last[1] is None else last


def test_a_read_is_the_state_at_its_read_version(api: PublicApi) -> None:
    keys = Keys(new_tenant(api.admin))

    def write(number: int) -> list[Change]:
        history: list[Change] = []
        for turn in range(WRITES):
            value = b"%d-%d" % (number, turn)
            if turn % 3 == 2:
                history.append((keys.committed([delete(KEY)]), None))
            else:
                history.append((keys.committed([put(KEY, value)]), value))
        return history

    def read_one() -> list[Read]:
        return [_read(keys.find(KEY).json()) for _ in range(READS)]

    def read_range() -> list[Read]:
        found = []
        for _ in range(READS):
            page = keys.range()
            item: dict[str, Any] = page["items"][0] if page["items"] else {}
            found.append(_read({**item, "read_version": page["read_version"]}))
        return found

    writers = [lambda number=number: write(number) for number in range(WRITERS)]
    done: list[Any] = at_once(*writers, *[read_one] * (READERS - 1), read_range)
    history = [change for written in done[:WRITERS] for change in written]
    reads = [read for found in done[WRITERS:] for read in found]
    wrong = [read for read in reads if state_at(history, read[0]) != (read[1], read[2])]
    assert wrong == []
    assert len({read[0] for read in reads}) > 5, "the log advanced while the readers read"


def _read(document: dict[str, Any]) -> Read:
    value = document.get("value")
    return document["read_version"], document.get("version"), None if value is None else base64.b64decode(value)
