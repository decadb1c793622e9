"""`berth archive run`: seals segments of ended allocations and deletes their rows after that.

For each segment: write it, write its manifest, delete its rows in one transaction that also records the segment. A kill
loses nothing: a segment without a manifest is no part of the archive, and the next run finishes a manifest that the database
does not know: it deletes the rows that are still as they were sealed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

import psycopg

from berth.cli.deployment.archive.chains import read_segment, stored_manifests
from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.directory import Destination
from berth.cli.deployment.archive.manifests import Manifest, describe, digest_of, pack
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.cli.deployment.archive.rows import (
    Connection,
    Head,
    Sealed,
    count_known,
    delete_sealed,
    find_allocations,
    lock_archive,
    read_head,
    read_lines,
    read_moment,
)
from berth.process.crash_points import reach

ALLOCATIONS_MAX = 1_000
"""Of a segment, and so of a deletion: a transaction holds the rows of as many allocations."""
SEGMENT_BYTES_MAX = 32 * 2**20
"""Of a segment before compression, unless one allocation alone is larger."""
_LOWEST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run did. `skipped`: sealed, but locked or changed meanwhile; a later segment contains them again."""

    segments: int = 0
    deleted: int = 0
    skipped: int = 0
    resumed: int = 0

    def and_segment(self, deleted: int, skipped: int, *, resumed: bool = False) -> Archived:
        """With one more segment."""
        return replace(
            self,
            segments=self.segments + 1,
            deleted=self.deleted + deleted,
            skipped=self.skipped + skipped,
            resumed=self.resumed + resumed,
        )


def run_archive(
    database_url: str,
    destination: Destination,
    days: int,
    *,
    allocations_max: int = ALLOCATIONS_MAX,
    show: Callable[[Archived], None] = lambda _: None,
) -> Archived:
    """Archive and delete everything that ended more than `days` days ago. Raises `ArchiveProblem`, `psycopg.Error`.

    One run at a time: a second one raises `ArchiveProblem` at once.
    """
    with psycopg.connect(database_url, autocommit=True, application_name="berth archive") as connection:
        if not lock_archive(connection):
            raise ArchiveProblem(
                "archive_running", "another `berth archive run` works on this database; wait for its end"
            )
        done, head = _resume(connection, destination)
        show(done)
        after = _LOWEST
        while found := find_allocations(connection, after, days, allocations_max):
            sealed, after = _seal(connection, destination, head, found, days)
            deleted = delete_sealed(connection, sealed)
            head = Head(sealed.sequence, sealed.manifest_sha256)
            done = done.and_segment(deleted, len(sealed.digests) - deleted)
            show(done)
    return done


def _resume(connection: Connection, destination: Destination) -> tuple[Archived, Head]:
    """Delete the rows of manifests that the database does not know. Raises `ArchiveProblem` if they do not continue it."""
    head, done = read_head(connection), Archived()
    for manifest, digest in stored_manifests(destination, head.sequence):
        if manifest.sequence == head.sequence:
            if digest != head.manifest_sha256:
                raise _foreign(destination, manifest)
            continue
        if manifest.sequence != head.sequence + 1 or manifest.previous != head.manifest_sha256:
            raise _foreign(destination, manifest)
        digests: dict[UUID, str] = {}
        for segment in manifest.segments:
            digests |= {UUID(line.allocation_id): line.sha256 for line in read_segment(destination, segment)}
        if count_known(connection, list(digests)) == 0:
            raise _foreign(destination, manifest)
        deleted = delete_sealed(connection, Sealed(manifest.sequence, digest, destination.name, digests))
        head = Head(manifest.sequence, digest)
        done = done.and_segment(deleted, len(digests) - deleted, resumed=True)
    return done, head


def _foreign(destination: Destination, manifest: Manifest) -> ArchiveProblem:
    return ArchiveProblem(
        "archive_not_continued",
        f"{manifest.name} in {destination.name} does not continue the archive of this database; name the directory of its "
        "last run, or an empty one",
    )


def _seal(
    connection: Connection, destination: Destination, head: Head, found: list[UUID], days: int
) -> tuple[Sealed, UUID]:
    """Write a segment and its manifest; return what is sealed, and the last allocation in it."""
    reach(CrashPoint.BEFORE_SEGMENT)
    sequence = head.sequence + 1
    lines = read_lines(connection, found, SEGMENT_BYTES_MAX)
    moment, revision = read_moment(connection)
    content = pack(lines)
    segment = describe(sequence, moment[:10], lines, content)
    destination.write(segment.name, content)
    reach(CrashPoint.AFTER_SEGMENT)
    manifest = Manifest(sequence, head.manifest_sha256, moment, revision, days, [segment])
    destination.write(manifest.name, manifest.content())
    reach(CrashPoint.AFTER_MANIFEST)
    digests = {UUID(line.allocation_id): line.sha256 for line in lines}
    return Sealed(sequence, digest_of(manifest.content()), destination.name, digests), UUID(segment.last)
