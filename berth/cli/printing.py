"""Prints results: JSON with stable shapes for programs, tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.cells import cell_len, set_cell_size

from berth.cli.session import Session
from berth.cli.terminal import visible

Item = TypeVar("Item", bound=BaseModel)
Column = tuple[str, Callable[[Any], object]]

STATE_STYLES = {
    "active": "green", "released": "dim", "failed": "red", "release_failed": "red", "provisioning": "yellow",
    "requested": "yellow", "releasing": "yellow", "cordoned": "yellow", "draining": "yellow",
    "hold": "yellow", "confirmed": "green", "cancelled": "dim", "expired": "dim", "consumed": "dim",
    "available": "green", "reserved": "yellow", "cleanup_blocked": "red", "out_of_service": "red",
}  # fmt: skip


def as_json(item: BaseModel) -> Any:
    """The item as the API sent it."""
    return item.model_dump(mode="json", by_alias=True)


def cell(value: object) -> str:
    """One value for a person, on one line."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{visible(str(key))}={cell(inner)}" for key, inner in value.items()) or "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(cell(inner) for inner in value) or "-"
    return visible(str(value))


def stated(state: str, since: datetime | None, detail: str | None) -> str:
    """A state with its time and detail, where there are any: `error since 2026-01-02 03:04:05: runcmd`."""
    return f"{state}{f' since {since:%Y-%m-%d %H:%M:%S}' if since else ''}{f': {detail}' if detail else ''}"


def show_list(session: Session, items: Iterable[Item], columns: Sequence[Column], empty: str = "nothing yet") -> None:
    """Print `{"items": [...]}`, or a table."""
    found = list(items)
    if session.json:
        session.console.print_json(data={"items": [as_json(item) for item in found]})
        return
    if not found:
        session.console.print(empty, style="dim", markup=False)
        return
    rows = [([cell(read(item)) for _, read in columns], _style(item)) for item in found]
    print_aligned(session, [([title for title, _ in columns], "bold"), *rows])


def show_one(session: Session, item: BaseModel, rows: Sequence[Column]) -> None:
    """Print the item as JSON, or as lines of name and value; values that are None are left out."""
    if session.json:
        session.console.print_json(data=as_json(item))
        return
    read_rows = [(title, read(item)) for title, read in rows]
    print_aligned(session, [([title, cell(value)], None) for title, value in read_rows if value is not None])


def print_aligned(session: Session, rows: Sequence[tuple[Sequence[str], str | None]]) -> None:
    """Print rows as aligned columns, each row in its style.

    A row is one line, however narrow the terminal is: names and ids stay whole for copying and searching.
    """
    widths = [max(map(cell_len, column)) for column in zip(*(cells for cells, _ in rows), strict=True)]
    for cells, style in rows:
        line = "  ".join(set_cell_size(text, width) for text, width in zip(cells, widths, strict=True))
        session.console.print(line.rstrip(), style=style, markup=False, soft_wrap=True)


def _style(item: BaseModel) -> str | None:
    return STATE_STYLES.get(str(getattr(item, "status", getattr(item, "state", ""))))
