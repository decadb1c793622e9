"""Reads an archive and judges it: the chain of manifests, the checksums of segments, the chain of the audit, single lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from berth.cli.deployment.archive.audit_rows import follow_chain
from berth.cli.deployment.archive.directory import Destination
from berth.cli.deployment.archive.manifests import (
    Kind,
    Line,
    Manifest,
    Segment,
    digest_of,
    read_manifest,
    sequence_of,
    unpack,
)
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.client.audit.chain import KnownRow
from berth.process.json_objects import JsonObject


@dataclass
class Judged:
    """What a check of an archive found. `repeated`: allocations in several segments, because they were locked or changed.
    `deliveries_repeated`: likewise, or because they were sent again.

    `audit_head`: sequence and hash of the newest row of the audit in it, whose chain was recomputed; None if it has none.
    """

    manifests: int = 0
    allocations: int = 0
    repeated: int = 0
    audit_rows: int = 0
    deliveries: int = 0
    deliveries_repeated: int = 0
    audit_head: str | None = None
    unsealed: list[str] = field(default_factory=list)
    """Files that no manifest names: an interrupted run left them."""
    violations: list[str] = field(default_factory=list)


def stored_manifests(destination: Destination, first: int = 0) -> Iterator[tuple[Manifest, str]]:
    """Yield the manifests from the sequence `first` on, with the digest of each, in order. Raises `ArchiveProblem`."""
    numbered = ((sequence_of(name), name) for name in destination.names())
    for _, name in sorted((number, name) for number, name in numbered if number is not None and number >= first):
        content = destination.read(name)
        yield read_manifest(name, content), digest_of(content)


def read_segment(destination: Destination, segment: Segment) -> list[Line]:
    """Return the lines of a segment. Raises `ArchiveProblem` if it is not what its manifest says."""
    content = destination.read(segment.name)
    if digest_of(content) != segment.sha256:
        raise ArchiveProblem("archive_damaged", f"{segment.name} has another SHA-256 than its manifest says")
    lines = list(unpack(segment, content))
    if len(lines) != segment.lines:
        raise ArchiveProblem(
            "archive_damaged", f"{segment.name} has {len(lines)} lines; its manifest says {segment.lines}"
        )
    return lines


def follow_segment(segment: Segment, lines: list[Line], before: KnownRow | None = None) -> KnownRow:
    """Recompute the chain of the audit over a segment's rows; return its last row. Raises `ArchiveProblem`.

    `before`: the last row of the segment before; None if that is in an earlier archive, so that the manifest is believed.
    """
    start = KnownRow(int(segment.first) - 1, bytes.fromhex(segment.hash_before or ""))
    if before is not None and before != start:
        raise ArchiveProblem(
            "archive_damaged",
            f"{segment.name} begins with audit row {segment.first}, and the segment before ends with row {before.sequence}:"
            f"{before.hash.hex()}",
        )
    head = follow_chain(start, lines, segment.name)
    if (str(head.sequence), head.hash.hex()) != (segment.last, segment.hash):
        raise ArchiveProblem("archive_damaged", f"{segment.name} does not end with the row that its manifest names")
    return head


def judge(destination: Destination) -> Judged:
    """Check every manifest and segment. The first manifest may name a previous one: it lies in an earlier directory."""
    judged = Judged()
    seen: dict[Kind, Counter[str]] = {kind: Counter() for kind in Kind}
    named: set[str] = set()
    before: tuple[Manifest, str] | None = None
    head: KnownRow | None = None
    for manifest, digest in stored_manifests(destination):
        judged.manifests += 1
        named |= {manifest.name, *(segment.name for segment in manifest.segments)}
        judged.violations += _breaks(before, manifest)
        before = manifest, digest
        for segment in manifest.segments:
            try:
                lines = read_segment(destination, segment)
                if segment.kind is Kind.AUDIT:
                    judged.audit_rows += len(lines)
                    head = follow_segment(segment, lines, head)
                else:
                    seen[segment.kind].update(line.key for line in lines)
            except ArchiveProblem as problem:
                judged.violations.append(str(problem))
    judged.audit_head = None if head is None else f"{head.sequence}:{head.hash.hex()}"
    judged.allocations, judged.repeated = _counted(seen[Kind.ALLOCATIONS])
    judged.deliveries, judged.deliveries_repeated = _counted(seen[Kind.DELIVERIES])
    judged.unsealed = [name for name in destination.names() if name not in named]
    return judged


def _counted(seen: Counter[str]) -> tuple[int, int]:
    """How many there are, and how many of them are there more than once."""
    return len(seen), sum(count > 1 for count in seen.values())


def _breaks(before: tuple[Manifest, str] | None, manifest: Manifest) -> Iterator[str]:
    if before is None:
        if (manifest.sequence == 1) != (manifest.previous is None):
            yield f"{manifest.name} is the first one and names the previous manifest {manifest.previous}"
        return
    if manifest.sequence != before[0].sequence + 1:
        yield f"{manifest.name} follows {before[0].name}: a manifest is missing or there twice"
    elif manifest.previous != before[1]:
        yield f"{manifest.name} does not name the SHA-256 of {before[0].name}"


def find_allocation(destination: Destination, allocation_id: str) -> JsonObject | None:
    """Return the newest rows of an allocation in the archive; None if there are none. Raises `ArchiveProblem`."""
    return _find(destination, Kind.ALLOCATIONS, allocation_id, lambda s: s.first <= allocation_id <= s.last)


def find_audit_row(destination: Destination, sequence: int) -> JsonObject | None:
    """Return a row of the audit in the archive; None if it is not there. Raises `ArchiveProblem`."""
    return _find(destination, Kind.AUDIT, str(sequence), lambda s: int(s.first) <= sequence <= int(s.last))


def find_delivery(destination: Destination, key: str) -> JsonObject | None:
    """Return the newest row of a delivery in the archive; None if there is none. Raises `ArchiveProblem`."""
    return _find(destination, Kind.DELIVERIES, key, lambda s: s.first <= key <= s.last)


def _find(destination: Destination, kind: Kind, key: str, may_contain: Callable[[Segment], bool]) -> JsonObject | None:
    found = None
    for manifest, _ in stored_manifests(destination):
        for segment in manifest.segments:
            if segment.kind is kind and may_contain(segment):
                for line in read_segment(destination, segment):
                    if line.key == key:
                        found = json.loads(line.text)
    return found
