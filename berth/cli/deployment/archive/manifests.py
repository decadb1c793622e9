"""Names and content of segments and manifests. Pure: no I/O and no clock.

A segment is gzip-compressed newline-delimited JSON, one allocation per line, in order of ids. Its manifest contains its
SHA-256 and that of the manifest before, so that the manifests form a chain. Both are bytes that depend on content alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from berth.cli.deployment.archive.problems import ArchiveProblem

FORMAT = 1
_MANIFEST_NAME = re.compile(r"\d{4}-\d{2}-\d{2}/(\d{12})\.manifest\.json")


@dataclass(frozen=True, slots=True)
class Line:
    """One allocation with all rows that belong to it, as JSON text."""

    allocation_id: str
    text: str

    @property
    def sha256(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Segment:
    """What a manifest says of its segment. `bytes` is the compressed size."""

    name: str
    sha256: str
    bytes: int
    allocations: int
    first: str
    last: str


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
        """Name of the file, below the archive."""
        return f"{self.sealed_at[:10]}/{self.sequence:012d}.manifest.json"

    def content(self) -> bytes:
        """The file's bytes."""
        return (json.dumps(asdict(self), sort_keys=True, indent=1) + "\n").encode()


def digest_of(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def pack(lines: Sequence[Line]) -> bytes:
    """Return the content of a segment."""
    return gzip.compress(b"".join(line.text.encode() + b"\n" for line in lines), mtime=0)


def unpack(name: str, content: bytes) -> Iterator[Line]:
    """Yield a segment's lines. Raises `ArchiveProblem` if it is no segment."""
    try:
        for text in gzip.decompress(content).decode().split("\n")[:-1]:
            yield Line(str(json.loads(text)["allocation_id"]), text)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ArchiveProblem("archive_damaged", f"{name} is no segment of an archive: {error}") from error


def describe(sequence: int, date: str, lines: Sequence[Line], content: bytes) -> Segment:
    """What the manifest says of a segment of these lines; there is at least one."""
    first, last = lines[0].allocation_id, lines[-1].allocation_id
    name = f"{date}/{sequence:012d}-{first}-{last}.ndjson.gz"
    return Segment(name, digest_of(content), len(content), len(lines), first, last)


def sequence_of(name: str) -> int | None:
    """The sequence in a manifest's name; None for any other file."""
    found = _MANIFEST_NAME.fullmatch(name)
    return None if found is None else int(found[1])


def read_manifest(name: str, content: bytes) -> Manifest:
    """Parse a manifest. Raises `ArchiveProblem` if it is none, or if its name does not fit."""
    try:
        members = json.loads(content)
        segments = [Segment(**segment) for segment in members.pop("segments")]
        manifest = Manifest(**members, segments=segments)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveProblem("archive_damaged", f"{name} is no manifest of an archive: {error}") from error
    if manifest.format != FORMAT or manifest.name != name:
        raise ArchiveProblem(
            "archive_damaged", f"{name} is format {manifest.format} and says that it is {manifest.name}"
        )
    return manifest
