"""`berth audit`: the record of actions, as a list and as newline-delimited JSON, and the verification of its chain."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.endings import FAILED, USAGE, Refused
from berth.cli.printing import Column, show_list
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.client import AuditEntry, Client
    from berth.client.audit.chain import KnownRow, VerifiedChain

FOLLOW_SECONDS = 1.0
"""Between two requests of `export --follow` at the end of the audit."""
PAGE = 500

app = typer.Typer(no_args_is_help=True, help="The record of actions: all for admin keys, the tenant's for tenant keys.")


def _outcome(entry: AuditEntry) -> str:
    return entry.code if entry.status is None else f"{entry.status} {entry.code}"


LISTED: list[Column] = [
    ("sequence", lambda e: e.sequence), ("at", lambda e: e.at), ("principal", lambda e: e.principal.id),
    ("role", lambda e: e.principal.role), ("source", lambda e: e.source), ("action", lambda e: e.action),
    ("subject", lambda e: e.subject), ("outcome", _outcome),
]  # fmt: skip

Since = Annotated[datetime | None, typer.Option(help="recorded at this time or later")]
Until = Annotated[datetime | None, typer.Option(help="recorded before this time")]


@command(app, "list")
def list_audit(
    session: Session,
    subject: Annotated[str | None, typer.Option(help="only on this object, for example nodes/<id>")] = None,
    principal: Annotated[str | None, typer.Option(help="only by this principal (the id of its API key)")] = None,
    tenant: Annotated[UUID | None, typer.Option(help="only by principals of this tenant (admin keys only)")] = None,
    action: Annotated[str | None, typer.Option(help="only this action, for example allocation.create")] = None,
    outcome: Annotated[str | None, typer.Option(help="only with this outcome: ok, noop or a problem's code")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List audited actions, oldest first."""
    with session.client() as client:
        if client.me().tenant is None:
            found = client.iterate_audit(
                subject=subject, principal=principal, tenant_id=tenant, action=action, outcome=outcome, since=_utc(since),
                until=_utc(until),
            )  # fmt: skip
        else:
            found = client.iterate_own_audit(
                subject=subject,
                principal=principal,
                action=action,
                outcome=outcome,
                since=_utc(since),
                until=_utc(until),
            )
        show_list(session, found, LISTED, empty="no audited actions")


def _utc(at: datetime | None) -> datetime | None:
    """The time with an offset: UTC if none was given."""
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)


@command(app, "export")
def export(
    session: Session,
    after: Annotated[
        int | None, typer.Option(min=0, help="begin after this sequence: metadata.sequence of the last line")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="wait for more at the end")] = False,
) -> None:
    """Print audited actions as OCSF API Activity (class 6003), one JSON object per line, oldest first.

    Lines are printed as pages arrive. After an interruption, `--after` with the `metadata.sequence` of the last whole line
    resumes without a gap and without a repetition. Without it the first line is the oldest row that is not archived.
    """
    from berth.client.audit.ocsf import ocsf_event

    with session.client() as client:
        for entry in _entries(client, after, follow=follow, own=client.me().tenant is not None):
            typer.echo(json.dumps(ocsf_event(entry), separators=(",", ":"), ensure_ascii=False))


def _entries(client: Client, after: int | None, *, follow: bool, own: bool) -> Iterator[AuditEntry]:
    """All entries, or those after a sequence, page by page; with `follow`, also those that are recorded later."""
    read = client.iterate_own_audit if own else client.iterate_audit
    while True:
        for entry in read(after=after, limit=PAGE):
            yield entry
            after = entry.sequence
        if not follow:
            return
        time.sleep(FOLLOW_SECONDS)


@command(app, "verify")
def verify(
    session: Session,
    start: Annotated[int | None, typer.Option("--from", min=0, help="begin at this row of an earlier run")] = None,
    expect_hash: Annotated[str | None, typer.Option(help="the hash of the row of --from")] = None,
    expect_head: Annotated[
        str | None, typer.Option(metavar="SEQUENCE:HASH", help="a row that the chain must contain, with its hash")
    ] = None,
) -> None:
    """Recompute the chain of the audit from its rows (admin keys only). Exit code 1: it does not hold.

    Prints `head SEQUENCE:HASH`; store it outside of Berth. With `--from` and `--expect-hash`, or `--expect-head`, the next run
    notices that rows up to there were cut off or written anew. If rows are archived, begin with the head that
    `berth archive verify` prints.
    """
    from berth.client.audit.chain import ChainBroken, RowArchived, verify_chain

    if (start is None) != (expect_hash is None):
        raise Refused("--from and --expect-hash go together; give both or neither", code="usage", exit_code=USAGE)
    known = None if start is None or expect_hash is None else _known_row(f"{start}:{expect_hash}", "--expect-hash")
    expected = None if expect_head is None else _known_row(expect_head, "--expect-head")
    if known is not None and expected is not None and expected.sequence < known.sequence:
        raise Refused("the row of --expect-head is before that of --from", code="usage", exit_code=USAGE)
    with session.client() as client:
        anchor = _anchor(client)
        try:
            found = verify_chain(
                lambda after: client.iterate_audit(after=after, limit=PAGE),
                known=known,
                expected=expected,
                anchor=anchor,
            )
        except RowArchived as archived:
            raise Refused(
                f"{archived}; `berth archive verify` verifies it and prints the row to begin with",
                code="audit_truncated",
            ) from archived
        except ChainBroken as broken:
            _show_broken(session, broken.sequence, str(broken))
            raise typer.Exit(FAILED) from broken
    _show_verified(session, found, anchor, believed=known is None or known.sequence < anchor.sequence)


def _anchor(client: Client) -> KnownRow:
    """The row that the server's chain continues, with the hash that the server says; sequence 0 if it has all rows."""
    from berth.client import AuditTruncated
    from berth.client.audit.chain import START, KnownRow

    try:
        client.list_audit(after=0, limit=1)
    except AuditTruncated as truncated:
        first, digest = int(truncated.extra["first_sequence"]), str(truncated.extra["hash_before"])
        return KnownRow(first - 1, bytes.fromhex(digest))
    return KnownRow(0, START)


def _known_row(text: str, option: str) -> KnownRow:
    from berth.client.audit.chain import KnownRow

    named = re.fullmatch(r"(\d{1,19}):([0-9a-fA-F]{64})", text)
    if named is None:
        raise Refused(f"{option} needs a hash of 64 hexadecimal digits: SEQUENCE:HASH", code="usage", exit_code=USAGE)
    return KnownRow(int(named[1]), bytes.fromhex(named[2]))


def _show_broken(session: Session, sequence: int, sentence: str) -> None:
    if session.json:
        session.console.print_json(data={"verified": False, "sequence": sequence, "detail": sentence})
    else:
        session.errors.print(f"berth: {sentence}", style="red", markup=False, soft_wrap=True)


def _show_verified(session: Session, found: VerifiedChain, anchor: KnownRow, *, believed: bool) -> None:
    head = found.head
    if session.json:
        content = {"checked": found.checked, "first": found.first, "last": head.sequence, "hash": head.hash.hex()}
        session.console.print_json(data={"verified": True, **content, "archived_to": anchor.sequence})
        return
    rows = "no rows" if found.first is None else f"{found.checked} rows, {found.first} to {head.sequence}"
    session.console.print(f"the chain of the audit holds: {rows}", markup=False, soft_wrap=True)
    session.console.print(f"head {head.sequence}:{head.hash.hex()}", markup=False, soft_wrap=True)
    if anchor.sequence and believed:
        session.console.print(
            f"rows up to {anchor.sequence} are archived, and the server says that their last hash is {anchor.hash.hex()};"
            " `berth archive verify` must print it",
            markup=False,
            soft_wrap=True,
        )
