"""Takes a file or a download whole: copied once, hashed meanwhile, bounded, and found out if it changed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from berth.cli.endings import UNREACHABLE, Refused
from berth.cli.images.qcow2 import NotAnImage

CHUNK_BYTES = 1 << 20
READ_SECONDS_MAX = 30.0


def is_url(source: str) -> bool:
    """Whether the source is downloaded."""
    return source.startswith(("http://", "https://"))


def take(source: str, target: Path, bytes_max: int) -> str:
    """Write the source to `target`, durably; its SHA-256. Raises NotAnImage, `Refused`, OSError."""
    chunks = _downloaded(source, bytes_max) if is_url(source) else _read(Path(source), bytes_max)
    digest, received = hashlib.sha256(), 0
    with target.open("xb") as file:
        for chunk in chunks:
            received += len(chunk)
            if received > bytes_max:
                raise NotAnImage(f"it has more than {bytes_max} bytes (--bytes-max)")
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _read(path: Path, bytes_max: int) -> Iterator[bytes]:
    # Not blocking: a named pipe would be waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        os.close(descriptor)
        raise NotAnImage("it is no regular file")
    with os.fdopen(descriptor, "rb") as file:
        if before.st_size > bytes_max:
            raise NotAnImage(f"it has {before.st_size} bytes; at most {bytes_max} are accepted (--bytes-max)")
        read = 0
        while chunk := file.read(CHUNK_BYTES):
            read += len(chunk)
            yield chunk
        after, named = os.fstat(descriptor), path.stat()
        if read != before.st_size or _version(before) != _version(after) or _version(after) != _version(named):
            raise NotAnImage("it changed while it was read; import it once nothing writes to it")


def _version(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def leaves_https(urls: Sequence[str]) -> bool:
    """Whether a download that began with TLS went on without it."""
    return urls[0].startswith("https:") and not all(url.startswith("https:") for url in urls)


def _length_of(header: str | None) -> int:
    """The length that an answer announces; 0 if it announces none that can be read: the download itself is bounded."""
    return int(header) if header is not None and header.isdecimal() else 0


def _downloaded(url: str, bytes_max: int) -> Iterator[bytes]:
    # Loaded by the command alone: start-up stays light.
    import httpx

    try:
        with (
            httpx.Client(timeout=READ_SECONDS_MAX, follow_redirects=True) as client,
            # Packed in transit a small answer could unpack without bound.
            client.stream("GET", url, headers={"accept-encoding": "identity"}) as answer,
        ):
            if leaves_https([str(step.url) for step in (*answer.history, answer)]):
                raise Refused(f"{url} leads to a URL without TLS", code="image_download_failed")
            if answer.is_error:
                raise Refused(f"{url} answers {answer.status_code}", code="image_download_failed")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise Refused(f"{url} sends packed content although it was asked not to", code="image_download_failed")
            if _length_of(answer.headers.get("content-length")) > bytes_max:
                raise NotAnImage(f"it has more than {bytes_max} bytes (--bytes-max)")
            yield from answer.iter_raw(CHUNK_BYTES)
    except httpx.InvalidURL as error:
        raise Refused(f"{url}: {error}", code="image_download_failed") from error
    except httpx.HTTPError as error:
        detail = f"{url} cannot be downloaded: {str(error) or type(error).__name__}; run the command again"
        raise Refused(detail, code="image_download_failed", exit_code=UNREACHABLE) from error
