"""`berth operations`: the outcome of a write whose response was lost."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.endings import UNKNOWN, Refused
from berth.cli.printing import Column, as_json, show_one
from berth.cli.session import Session, command
from berth.cli.times import moment

app = typer.Typer(no_args_is_help=True, help="Operations: the outcome of a write.")

MEANS = {
    "pending": "it is in progress; ask again",
    "committed": "it was done, exactly once",
    "rejected": "it was refused, and changed nothing",
    "unknown": "it was not done, and the key is fenced: nothing is done under this key any more",
    "retired": "its record is no longer kept, so its outcome is unknown",
}
ROWS: list[Column] = [
    ("key", lambda o: o.key), ("state", lambda o: o.state), ("means", lambda o: MEANS.get(o.state)),
    ("status", lambda o: o.status), ("code", lambda o: o.code), ("subject", lambda o: o.subject_id),
    ("version", lambda o: o.version),
    ("answer", lambda o: o.result), ("kept until", lambda o: o.retire_after),
]  # fmt: skip


@command(app, "show")
def show(
    session: Session,
    key: Annotated[str, typer.Argument(help="the idempotency key that the write was sent with")],
    since: Annotated[
        str | None, typer.Option(help="when it was first sent; not needed for keys made by the berth client")
    ] = None,
) -> None:
    """Show the outcome of a write by its key. The query fences the key: a write that has not arrived is never executed."""
    with session.client() as client:
        found = client.get_operation(key, since=moment(since, "--since"))
    if found.state == "retired" and not session.json:
        raise Refused(f"{key}: {MEANS['retired']}", code="operation_retired", exit_code=UNKNOWN)
    if session.json:
        session.console.print_json(data=as_json(found))
        raise typer.Exit(UNKNOWN if found.state == "retired" else 0)
    show_one(session, found, ROWS)
