"""Names and content of segments and manifests. Pure: no I/O and no clock.

A segment is gzip-compressed newline-delimited JSON: one allocation per line, in order of ids, one row of the audit, in order of
sequences, or one delivery, in order of webhooks and numbers. Its manifest contains its SHA-256 and that of the manifest before,
so that the manifests form a chain. Both are bytes that depend on content alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.process.json_objects import JsonObject

FORMAT = 2
_MANIFEST_NAME = re.compile(r"(?:manifests/(\d{12})\.json|\d{4}-\d{2}-\d{2}/(\d{12})\.manifest\.json)")
"""The present name and that of format 1."""


class Kind(StrEnum):
    """What the lines of a segment are."""

    ALLOCATIONS = "allocations"
    AUDIT = "audit"
    DELIVERIES = "webhook_deliveries"


_KEYS = {Kind.ALLOCATIONS: "allocation_id", Kind.AUDIT: "sequence", Kind.DELIVERIES: "delivery"}


@dataclass(frozen=True, slots=True)
class Line:
    """An allocation with all rows that belong to it, a row of the audit, or a delivery, as JSON text.

    `key`: the allocation's id, the row's sequence, or the delivery's webhook and number.
    """

    key: str
    text: str

    @property
    def sha256(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Segment:
    """What a manifest says of its segment. `bytes` is the compressed size.

    Of the audit: `hash_before` is the hash of the row before the first one, `hash` that of the last one, in hex.
    """

    name: str
    sha256: str
    bytes: int
    lines: int
    first: str
    last: str
    kind: Kind = Kind.ALLOCATIONS
    hash_before: str | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One link of the chain. `previous` is the SHA-256 of the manifest before, null for the first."""

    sequence: int
    previous: str | None
    sealed_at: str
    schema_revision: str
    retention_days: int
    segments: list[Segment]
    format: int = FORMAT

    @property
    def name(self) -> str:
        """Name of the file, below the archive; from the sequence alone, so that one writer of a sequence excludes all others."""
        if self.format == 1:
            return f"{self.sealed_at[:10]}/{self.sequence:012d}.manifest.json"
        return f"manifests/{self.sequence:012d}.json"

    def content(self) -> bytes:
        """The file's bytes."""
        return (json.dumps(asdict(self), sort_keys=True, indent=1) + "\n").encode()


def digest_of(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def pack(lines: Sequence[Line]) -> bytes:
    """Return the content of a segment."""
    return gzip.compress(b"".join(line.text.encode() + b"\n" for line in lines), mtime=0)


def unpack(segment: Segment, content: bytes) -> Iterator[Line]:
    """Yield a segment's lines. Raises `ArchiveProblem` if it is no segment."""
    try:
        for text in gzip.decompress(content).decode().split("\n")[:-1]:
            yield Line(str(json.loads(text)[_KEYS[segment.kind]]), text)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ArchiveProblem("archive_damaged", f"{segment.name} is no segment of an archive: {error}") from error


def describe(
    sequence: int,
    date: str,
    lines: Sequence[Line],
    content: bytes,
    kind: Kind = Kind.ALLOCATIONS,
    hashes: tuple[str, str] | None = None,
) -> Segment:
    """What the manifest says of a segment of these lines; there is at least one. `hashes`: before the first, of the last.

    The name contains a part of the digest: another content never has the name of what an interrupted run has written.
    """
    first, last, digest = lines[0].key, lines[-1].key, digest_of(content)
    name = f"{date}/{sequence:012d}-{kind}-{first}-{last}-{digest[:12]}.ndjson.gz"
    before, after = hashes or (None, None)
    return Segment(name, digest, len(content), len(lines), first, last, kind, before, after)


def sequence_of(name: str) -> int | None:
    """The sequence in a manifest's name; None for any other file."""
    found = _MANIFEST_NAME.fullmatch(name)
    return None if found is None else int(found[1] or found[2])


def read_manifest(name: str, content: bytes) -> Manifest:
    """Parse a manifest. Raises `ArchiveProblem` if it is none, or if its name does not fit."""
    try:
        members = json.loads(content)
        segments = [_segment(members["format"], segment) for segment in members.pop("segments")]
        manifest = Manifest(**members, segments=segments)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveProblem("archive_damaged", f"{name} is no manifest of an archive: {error}") from error
    if manifest.format not in (1, FORMAT) or manifest.name != name:
        raise ArchiveProblem(
            "archive_damaged", f"{name} is format {manifest.format} and says that it is {manifest.name}"
        )
    return manifest


def _segment(manifest_format: int, members: JsonObject) -> Segment:
    if manifest_format == 1:
        members["lines"] = members.pop("allocations")
    return Segment(**{**members, "kind": Kind(members.get("kind", Kind.ALLOCATIONS))})
