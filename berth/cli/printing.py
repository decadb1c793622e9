"""How results look: JSON with stable shapes for programs, tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.table import Table

from berth.cli.session import Session

Item = TypeVar("Item", bound=BaseModel)
Column = tuple[str, Callable[[Any], object]]

STATE_STYLES = {
    "active": "green", "released": "dim", "failed": "red", "release_failed": "red", "provisioning": "yellow",
    "requested": "yellow", "releasing": "yellow", "cordoned": "yellow", "draining": "yellow",
}  # fmt: skip


def as_json(item: BaseModel) -> Any:
    """The item as the API sent it."""
    return item.model_dump(mode="json", by_alias=True)


def cell(value: object) -> str:
    """One value for a person."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}={cell(inner)}" for key, inner in value.items()) or "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(cell(inner) for inner in value) or "-"
    return str(value)


def show_list(session: Session, items: Iterable[Item], columns: Sequence[Column], empty: str = "nothing yet") -> None:
    """Print `{"items": [...]}`, or a table."""
    found = list(items)
    if session.json:
        session.console.print_json(data={"items": [as_json(item) for item in found]})
        return
    if not found:
        session.console.print(empty, style="dim", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, _ in columns:
        table.add_column(title, overflow="fold")
    for item in found:
        style = STATE_STYLES.get(str(getattr(item, "status", getattr(item, "state", ""))))
        table.add_row(*(cell(read(item)) for _, read in columns), style=style)
    session.console.print(table, markup=False)


def show_one(session: Session, item: BaseModel, rows: Sequence[Column]) -> None:
    """Print the item as JSON, or as lines of name and value; values that are None are left out."""
    if session.json:
        session.console.print_json(data=as_json(item))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for title, read in rows:
        value = read(item)
        if value is not None:
            table.add_row(title, cell(value))
    session.console.print(table, markup=False)
