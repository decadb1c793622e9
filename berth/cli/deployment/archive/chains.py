"""Reads an archive and judges it: the chain of manifests, the checksums of segments, and single allocations in them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from berth.cli.deployment.archive.directory import Destination
from berth.cli.deployment.archive.manifests import (
    Line,
    Manifest,
    Segment,
    digest_of,
    read_manifest,
    sequence_of,
    unpack,
)
from berth.cli.deployment.archive.problems import ArchiveProblem


@dataclass
class Judged:
    """What a check of an archive found. `repeated`: allocations in several segments, because they were locked or changed."""

    manifests: int = 0
    allocations: int = 0
    repeated: int = 0
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
    lines = list(unpack(segment.name, content))
    if len(lines) != segment.allocations:
        raise ArchiveProblem(
            "archive_damaged", f"{segment.name} has {len(lines)} allocations; its manifest says {segment.allocations}"
        )
    return lines


def judge(destination: Destination) -> Judged:
    """Check every manifest and segment. The first manifest may name a previous one: it lies in an earlier directory."""
    judged, seen = Judged(), Counter[str]()
    named: set[str] = set()
    before: tuple[Manifest, str] | None = None
    for manifest, digest in stored_manifests(destination):
        judged.manifests += 1
        named |= {manifest.name, *(segment.name for segment in manifest.segments)}
        judged.violations += _breaks(before, manifest)
        before = manifest, digest
        for segment in manifest.segments:
            try:
                seen.update(line.allocation_id for line in read_segment(destination, segment))
            except ArchiveProblem as problem:
                judged.violations.append(str(problem))
    judged.allocations, judged.repeated = len(seen), sum(count > 1 for count in seen.values())
    judged.unsealed = [name for name in destination.names() if name not in named]
    return judged


def _breaks(before: tuple[Manifest, str] | None, manifest: Manifest) -> Iterator[str]:
    if before is None:
        if (manifest.sequence == 1) != (manifest.previous is None):
            yield f"{manifest.name} is the first one and names the previous manifest {manifest.previous}"
        return
    if manifest.sequence != before[0].sequence + 1:
        yield f"{manifest.name} follows {before[0].name}: a manifest is missing or there twice"
    elif manifest.previous != before[1]:
        yield f"{manifest.name} does not name the SHA-256 of {before[0].name}"


def find_allocation(destination: Destination, allocation_id: str) -> dict[str, Any] | None:
    """Return the newest rows of an allocation in the archive; None if there are none. Raises `ArchiveProblem`."""
    found = None
    for manifest, _ in stored_manifests(destination):
        for segment in manifest.segments:
            if segment.first <= allocation_id <= segment.last:
                for line in read_segment(destination, segment):
                    if line.allocation_id == allocation_id:
                        found = json.loads(line.text)
    return found
