"""`berth archive run`: seals segments of ended allocations, deliveries and old rows of the audit, and deletes their rows then.

For each segment: write it, write its manifest, delete its rows in one transaction that also records the segment. A kill
loses nothing: a segment without a manifest is no part of the archive, and the next run finishes a manifest that the database
does not know: it deletes the rows that are still as they were sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

import psycopg

from berth.cli.deployment.archive.audit_rows import (
    delete_sealed_rows,
    find_rows,
    follow_chain,
    is_of_database,
    read_audit_lines,
)
from berth.cli.deployment.archive.chains import follow_segment, read_segment, stored_manifests
from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.delivery_rows import (
    FIRST_PLACE,
    count_known_deliveries,
    delete_sealed_deliveries,
    find_deliveries,
    note_run,
    place_of,
    read_delivery_lines,
    use_archive,
)
from berth.cli.deployment.archive.directory import Destination
from berth.cli.deployment.archive.manifests import Kind, Line, Manifest, describe, digest_of, pack
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.cli.deployment.archive.rows import (
    Connection,
    Head,
    Sealed,
    archive_locked,
    count_known,
    delete_sealed,
    find_allocations,
    read_head,
    read_lines,
    read_moment,
    require_session,
)
from berth.process.crash_points import reach
from berth.process.restore_gate import require_no_restore_now

ALLOCATIONS_MAX = 1_000
"""Of a segment, and so of a deletion: a transaction holds the rows of as many allocations."""
AUDIT_ROWS_MAX = 10_000
"""Of a segment, and so of a deletion."""
DELIVERIES_MAX = 10_000
"""Of a segment, and so of a deletion."""
SEGMENT_BYTES_MAX = 32 * 2**20
"""Of a segment before compression, unless one allocation alone is larger."""
_LOWEST = UUID(int=0)
_DELETE: Mapping[Kind, Callable[[Connection, Sealed], int]] = {
    Kind.ALLOCATIONS: delete_sealed,
    Kind.AUDIT: delete_sealed_rows,
    Kind.DELIVERIES: delete_sealed_deliveries,
}
_COUNTED: Mapping[Kind, Callable[[Connection, Sealed], int]] = {
    Kind.ALLOCATIONS: count_known,
    Kind.DELIVERIES: count_known_deliveries,
}


@dataclass(frozen=True, slots=True)
class Retention:
    """After how many days allocations, rows of the audit, and deliveries leave; `audit_days` 0: never.

    `delivery_days` None: this run leaves deliveries alone; 0: sweepers delete them again, and no archive contains them.
    """

    days: int
    audit_days: int = 0
    delivery_days: int | None = None


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run did. `skipped`, `deliveries_skipped`: sealed, but locked or changed meanwhile; a later segment has them again.

    `audit_held_at`: a row of the audit that is due and stays, with all behind it: it proves the cleanup of an allocation that
    the database still has. `audit_unsent_from`: from this row on, rows that are due stay because a stream has not sent them.
    """

    segments: int = 0
    deleted: int = 0
    skipped: int = 0
    resumed: int = 0
    audit_rows: int = 0
    deliveries: int = 0
    deliveries_skipped: int = 0
    audit_held_at: int | None = None
    audit_unsent_from: int | None = None

    def and_segment(self, sealed: Sealed, deleted: int, *, resumed: bool = False) -> Archived:
        """With one more segment."""
        done = replace(self, segments=self.segments + 1, resumed=self.resumed + resumed)
        if sealed.segment.kind is Kind.AUDIT:
            return replace(done, audit_rows=done.audit_rows + deleted)
        skipped = len(sealed.digests) - deleted
        if sealed.segment.kind is Kind.DELIVERIES:
            return replace(
                done, deliveries=done.deliveries + deleted, deliveries_skipped=done.deliveries_skipped + skipped
            )
        return replace(done, deleted=done.deleted + deleted, skipped=done.skipped + skipped)


def run_archive(
    database_url: str,
    destination: Destination,
    retention: Retention,
    *,
    allocations_max: int = ALLOCATIONS_MAX,
    show: Callable[[Archived], None] = lambda _: None,
) -> Archived:
    """Archive and delete what is past its retention. Raises `ArchiveProblem`, `psycopg.Error`.

    One run at a time: a second one raises `ArchiveProblem` at once.
    """
    with psycopg.connect(database_url, autocommit=True, application_name="berth archive") as connection:
        require_no_restore_now(connection)
        with archive_locked(connection) as held:
            if not held:
                raise ArchiveProblem(
                    "archive_running", "another `berth archive run` works on this database; wait for its end"
                )
            run = _Run(connection, destination, retention, read_head(connection), show)
            run.resume()
            run.archive_allocations(allocations_max)
            run.archive_deliveries()
            run.archive_audit()
    return run.done


class _Run:
    """One run, which holds the lock of the archive: the newest segment, and what was done so far."""

    def __init__(
        self,
        connection: Connection,
        destination: Destination,
        retention: Retention,
        head: Head,
        show: Callable[[Archived], None],
    ) -> None:
        self._connection, self._destination, self._retention = connection, destination, retention
        self._head, self._show = head, show
        self.done = Archived()

    def resume(self) -> None:
        """Delete the rows of manifests that the database does not know. Raises `ArchiveProblem` if they do not continue it."""
        for manifest, digest in stored_manifests(self._destination, self._head.sequence):
            if manifest.sequence == self._head.sequence:
                if digest != self._head.manifest_sha256:
                    raise self._foreign(manifest)
                continue
            if manifest.sequence != self._head.sequence + 1 or manifest.previous != self._head.manifest_sha256:
                raise self._foreign(manifest)
            # A run writes one segment for each manifest.
            (segment,) = manifest.segments
            lines = read_segment(self._destination, segment)
            audit = segment.kind is Kind.AUDIT
            digests = {} if audit else {line.key: line.sha256 for line in lines}
            sealed = Sealed(manifest.sequence, digest, self._destination.name, segment, digests)
            if audit:
                if not is_of_database(self._connection, sealed):
                    raise self._foreign(manifest)
                follow_segment(segment, lines)
            elif _COUNTED[segment.kind](self._connection, sealed) == 0:
                raise self._foreign(manifest)
            self._delete(sealed, resumed=True)
        self._show(self.done)

    def archive_allocations(self, allocations_max: int) -> None:
        """Archive and delete the allocations that ended before the retention."""
        after, days = _LOWEST, self._retention.days
        while found := find_allocations(self._connection, after, days, allocations_max):
            reach(CrashPoint.BEFORE_SEGMENT)
            lines = read_lines(self._connection, found, SEGMENT_BYTES_MAX)
            self._delete(self._seal(lines, Kind.ALLOCATIONS, days))
            after = UUID(lines[-1].key)

    def archive_deliveries(self) -> None:
        """Archive and delete the deliveries that ended before their retention; sweepers leave them to the archive before that."""
        after, days = FIRST_PLACE, self._retention.delivery_days
        if days is None:
            return
        use_archive(self._connection, days)
        while days and (found := find_deliveries(self._connection, after, days, DELIVERIES_MAX)):
            reach(CrashPoint.BEFORE_SEGMENT)
            after = found[-1]
            lines = read_delivery_lines(self._connection, found, SEGMENT_BYTES_MAX)
            if lines:
                self._delete(self._seal(lines, Kind.DELIVERIES, days))
                after = place_of(lines[-1].key)
        if days:
            note_run(self._connection)

    def archive_audit(self) -> None:
        """Archive and delete the rows of the audit that were recorded before their retention, but never the newest."""
        days = self._retention.audit_days
        while days:
            due = find_rows(self._connection, days)
            self.done = replace(self.done, audit_held_at=due.held_at, audit_unsent_from=due.unsent_from)
            if due.last <= due.anchor.sequence:
                return
            reach(CrashPoint.BEFORE_SEGMENT)
            lines = read_audit_lines(self._connection, due, AUDIT_ROWS_MAX, SEGMENT_BYTES_MAX)
            last = follow_chain(due.anchor, lines, "the database")
            self._delete(self._seal(lines, Kind.AUDIT, days, (due.anchor.hash.hex(), last.hash.hex())))

    def _seal(self, lines: list[Line], kind: Kind, days: int, hashes: tuple[str, str] | None = None) -> Sealed:
        """Write a segment and its manifest; return what is sealed."""
        sequence = self._head.sequence + 1
        moment, revision = read_moment(self._connection)
        content = pack(lines)
        segment = describe(sequence, moment[:10], lines, content, kind, hashes)
        self._destination.write(segment.name, content)
        reach(CrashPoint.AFTER_SEGMENT)
        # A run whose session ended, and its lock with it, must not seal: another one may work by now.
        require_session(self._connection)
        manifest = Manifest(sequence, self._head.manifest_sha256, moment, revision, days, [segment])
        self._destination.write(manifest.name, manifest.content())
        reach(CrashPoint.AFTER_MANIFEST)
        digests = {} if kind is Kind.AUDIT else {line.key: line.sha256 for line in lines}
        return Sealed(sequence, digest_of(manifest.content()), self._destination.name, segment, digests)

    def _delete(self, sealed: Sealed, *, resumed: bool = False) -> None:
        deleted = _DELETE[sealed.segment.kind](self._connection, sealed)
        self._head = Head(sealed.sequence, sealed.manifest_sha256)
        self.done = self.done.and_segment(sealed, deleted, resumed=resumed)
        self._show(self.done)

    def _foreign(self, manifest: Manifest) -> ArchiveProblem:
        return ArchiveProblem(
            "archive_not_continued",
            f"{manifest.name} in {self._destination.name} does not continue the archive of this database; name the archive of"
            " its last run, or an empty one",
        )
