"""`berth kv`: keys and values of a tenant, or of the operators with an admin key."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.endings import Refused
from berth.cli.printing import Column, as_json, show_list, show_one
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.keyvalue_models import Commit, KeyValue

app = typer.Typer(no_args_is_help=True, help="Keys and values: read, write, commit.")


class Form(StrEnum):
    """How keys and values are written on the command line."""

    TEXT = "text"
    HEX = "hex"


FormOption = Annotated[Form, typer.Option("--form", help="how keys and values are written: UTF-8 text, or hexadecimal")]
KeyOption = Annotated[str | None, typer.Option(help="repeat an earlier request with its key")]
COMMIT_ROWS: list[Column] = [
    ("status", lambda c: c.status), ("version", lambda c: c.version), ("request id", lambda c: c.request_id),
]  # fmt: skip


def _raw(text: str, form: Form) -> bytes:
    try:
        return text.encode() if form is Form.TEXT else bytes.fromhex(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not {form}") from error


def _shown(raw: bytes, form: Form) -> str:
    return raw.decode(errors="backslashreplace") if form is Form.TEXT else raw.hex()


def _columns(form: Form) -> list[Column]:
    return [
        ("key", lambda k: _shown(k.key, form)), ("value", lambda k: _shown(k.value, form)), ("version", lambda k: k.version)
    ]  # fmt: skip


@command(app, "get")
def get(session: Session, key: Annotated[str, typer.Argument()], form: FormOption = Form.TEXT) -> None:
    """Show a key, its value, and the version at which it was read."""
    with session.client() as client:
        rows = [*_columns(form), ("read at", lambda k: k.read_version)]
        show_one(session, client.get_key(_raw(key, form)), rows)


@command(app, "put")
def put(
    session: Session,
    key: Annotated[str, typer.Argument()],
    value: Annotated[str, typer.Argument()],
    unchanged_since: Annotated[
        int | None,
        typer.Option(help="only if the key has not changed since this version; 0: only if it never existed"),
    ] = None,
    form: FormOption = Form.TEXT,
    idempotency_key: KeyOption = None,
) -> None:
    """Set the value of a key."""
    from berth.client.calls.keyvalue import unchanged_key, write_key

    name = _raw(key, form)
    preconditions = [] if unchanged_since is None else [unchanged_key(name, unchanged_since)]
    with session.client() as client:
        committed = client.commit_transaction(
            operations=[write_key(name, _raw(value, form))],
            preconditions=preconditions,
            idempotency_key=idempotency_key,
        )
        _conclude(session, committed)


@command(app, "range")
def range_(
    session: Session,
    begin: Annotated[str, typer.Argument(help="the first key")] = "",
    end: Annotated[
        str | None, typer.Argument(help="the key that ends the range, not included; default: no end")
    ] = None,
    form: FormOption = Form.TEXT,
) -> None:
    """List the keys of a range in byte order."""
    with session.client() as client:
        last = None if end is None else _raw(end, form)
        show_list(session, _every(client, _raw(begin, form), last), _columns(form))


def _every(client: Client, begin: bytes, end: bytes | None) -> Any:
    cursor: str | None = None
    while True:
        page = client.list_keys(begin=begin, end=end, cursor=cursor)
        found: list[KeyValue] = page.items
        yield from found
        cursor = page.next_cursor
        if cursor is None:
            return


@command(app, "commit")
def commit(
    session: Session,
    file: Annotated[Path, typer.Argument(help="JSON with `preconditions`, `operations`, `read_version`, `leader_id`")],
    idempotency_key: KeyOption = None,
) -> None:
    """Commit a transaction from a JSON file in the API's format: keys and values in base64."""
    try:
        body = json.loads(file.read_text())
        known = {
            name: body.pop(name)
            for name in ("preconditions", "operations", "read_version", "leader_id")
            if name in body
        }
        key = idempotency_key or body.pop("request_id", None)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise Refused(f"{file}: {error}", code="unreadable_file") from error
    if body:
        raise Refused(f"{file}: a transaction has no {', '.join(sorted(body))}", code="unreadable_file")
    with session.client() as client:
        _conclude(session, client.commit_transaction(**known, idempotency_key=key))


def _conclude(session: Session, committed: Commit) -> None:
    if committed.status != "committed" and not session.json:
        what = (
            "; ".join(json.dumps(conflict) for conflict in committed.conflicts) or "another leader writes the log now"
        )
        raise Refused(f"not committed: {what}; read again at version {committed.version}", code="not_committed")
    if session.json:
        session.console.print_json(data=as_json(committed))
        raise typer.Exit(0 if committed.status == "committed" else 1)
    show_one(session, committed, COMMIT_ROWS)
