"""The steps of `berth restore run`, in order. Each is finished, or repeated as a whole; nothing of it is kept in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString
from uuid import UUID

import psycopg

from berth.cli.deployment.restore import gate
from berth.cli.deployment.restore.gate import Restore
from berth.cli.deployment.restore.lost_rows import read_replays
from berth.cli.endings import Refused
from orchestrator.verification import Bounds, run_checks

Show = Callable[[str, str], None]
"""Gets the name of a finished step, and what it did."""
NOT_OVERDUE_SECONDS = 10.0 * 365 * 86_400
"""Everything that waits became overdue while nothing ran; that is no violation before anything is served."""


def run_restore(database_url: str, show: Show, without_export: str | None = None, highest_version: int = 0) -> Restore:
    """Do what is left of the open restore, or of a new one, and close it; return it. Raises `Refused` and psycopg.Error.

    `without_export`: why it goes on although the lost interval was not exported. `highest_version`: the highest version that any
    consumer is known to have read; 0: none is known.
    """
    with psycopg.connect(database_url, autocommit=True, application_name="berth restore") as connection:
        restore, is_new = gate.begin(connection)
        show("gate", f"{'opened' if is_new else 'open'}; no process serves until restore {restore.epoch} is closed")
        _require_export(connection, restore, without_export, show)
        _skip_versions(connection, restore.epoch, highest_version, show)
        _raise_sequences(connection, restore.epoch, show)
        _revoke(connection, restore.epoch, show)
        _adopt(connection, restore.epoch, show)
        _renew_fences(connection, restore.epoch, show)
        _end_runs(connection, restore.epoch, show)
        _close_nodes(connection, restore.epoch, show)
        _verify(database_url, show)
        return _close(connection, restore.epoch, show)


def _require_export(connection: gate.Connection, restore: Restore, without: str | None, show: Show) -> None:
    if without is not None:
        gate.waive_export(connection, restore.epoch, without)
    found = gate.read_restore(connection, restore.epoch)
    assert found is not None, "no restore is deleted"
    if not found.is_exported:
        raise Refused(
            "the lost interval is not exported, and NATS is its only witness: run `berth restore export` first, or, if NATS is"
            " lost too, give --without-export REASON",
            code="not_exported",
        )
    if found.without_export is not None:
        show("export", f"goes on without one: {found.without_export}")
        return
    replays = read_replays(connection, restore.epoch)
    show("export", f"has {found.export_events} events; {replays.left + replays.done} ends and revocations are replayed")


def _skip_versions(connection: gate.Connection, epoch: UUID, highest: int, show: Show) -> None:
    row = connection.execute("select restore_skip_versions(%s, %s)", (epoch, highest)).fetchone()
    assert row is not None, "the function returns one row"
    said = (
        "were skipped by the rebuild of the stream"
        if row[0] is None
        else (
            f"up to {row[0]} are skipped, so that none is given twice; a stream of before is made anew by `berth events rebuild`"
        )
    )
    show("versions", said)


def _value(connection: gate.Connection, query: LiteralString, epoch: UUID) -> Any:
    """What one of the functions of a restore returns."""
    row = connection.execute(query, (epoch,)).fetchone()
    assert row is not None, "the function returns one row"
    return row[0]


def _revoke(connection: gate.Connection, epoch: UUID, show: Show) -> None:
    found = _value(connection, "select restore_revoke(%s)", epoch)
    agents = _value(connection, "select restore_revoke_agents(%s)", epoch)
    said = f"{found} API keys, nodes, members and invitations, and {agents} agents of sites"
    show("revoke", f"{said}, that were revoked in the lost interval are revoked again")


def _adopt(connection: gate.Connection, epoch: UUID, show: Show) -> None:
    found = _value(connection, "select restore_adopt(%s)", epoch)
    agents = _value(connection, "select restore_adopt_agents(%s)", epoch)
    passwords = _value(connection, "select restore_adopt_passwords(%s)", epoch)
    said = f"{found} certificates of nodes, and {agents} of agents of sites, that were issued in the lost interval are adopted"
    show("adopt", f"{said}, and {passwords} passwords of BMCs that were stored in it")


def _raise_sequences(connection: gate.Connection, epoch: UUID, show: Show) -> None:
    found = _value(connection, "select restore_raise_sequences(%s)", epoch)
    done = "are" if found else "were already"
    show("raise", f"fences and every other sequence {done} above what the lost interval may have drawn")


def _renew_fences(connection: gate.Connection, epoch: UUID, show: Show) -> None:
    found = _value(connection, "select restore_renew_fences(%s)", epoch)
    show("renew", f"{found} allocations without a task are provisioned anew, under new fences")


def _end_runs(connection: gate.Connection, epoch: UUID, show: Show) -> None:
    found = _value(connection, "select restore_end_runs(%s)", epoch)
    show("runs", f"{found} runs of deploy systems are ended, without a command to their machines")


def _close_nodes(connection: gate.Connection, epoch: UUID, show: Show) -> None:
    found = _value(connection, "select restore_close_nodes(%s)", epoch)
    show("nodes", f"the slots of {found} nodes are out of service, each until its node has sent a complete inventory")


def _verify(database_url: str, show: Show) -> None:
    forgiving = Bounds(
        outbox_seconds=NOT_OVERDUE_SECONDS, overdue_seconds=NOT_OVERDUE_SECONDS, retirement_seconds=NOT_OVERDUE_SECONDS
    )
    verdicts = run_checks(database_url, forgiving)
    broken = [f"{verdict.promise}: {verdict.violations[0]}" for verdict in verdicts if not verdict.kept]
    if broken:
        raise Refused(
            f"the restored database violates promises, so nothing is served: {'; '.join(broken)}",
            code="violated",
        )
    show("verify", f"{len(verdicts)} promises are kept")


def _close(connection: gate.Connection, epoch: UUID, show: Show) -> Restore:
    gate.close(connection, epoch)
    closed = gate.read_restore(connection, epoch)
    assert closed is not None, "no restore is deleted"
    show("close", "processes serve from now on")
    return closed
