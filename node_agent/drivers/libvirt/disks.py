"""Disks of guests: what an image may be, an encrypted disk over it, and its wipe.

A disk is a qcow2 overlay that QEMU encrypts (LUKS inside of qcow2): what the tenant writes is on the node's medium only in
encrypted form.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from berth.process.durable_directories import sync_directory
from berth.process.json_objects import JsonObject
from node_agent.durable_files import write_durably

QEMU_IMG_SECONDS_MAX = 120
CREATE_TRIES_MAX = 20
UNMEASURED = "Unable to get accurate CPU usage"
CHUNK_BYTES = 1 << 20
SAMPLES_MAX = 256
"""Pieces of a wiped file that are read back."""
FORMATS = ("qcow2", "raw")
# The key is random: the many rounds that slow the guessing of a person's password would only cost time. With SHA-512 QEMU can
# measure a round, see `_measuring`.
_ENCRYPTED = "encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10,encrypt.hash-alg=sha512"


class ImageRefused(Exception):
    """The image must not be given to QEMU, for the reason in the text."""


class ImageTooLarge(ImageRefused):
    """The image unpacks to more than the guest's disk."""


@dataclass(frozen=True)
class ImageFacts:
    """What qemu-img says of an image file."""

    format: str
    virtual_bytes: int


def inspect_image(image: Path, virtual_bytes_max: int, stated: str | None = None) -> ImageFacts:
    """The facts of an image that may be used, of the `stated` format if one is. Raises ImageRefused, OSError.

    A qcow2 header can name any file of the node as backing or data file: such an image is refused.
    """
    # -U: the image may be in use by running guests.
    said = json.loads(_qemu_img("info", "--output=json", "-U", str(image)))
    data = said.get("format-specific", {}).get("data", {})
    if said["format"] not in FORMATS:
        raise ImageRefused(f"its format is {said['format']}, not {' or '.join(FORMATS)}")
    if stated not in (None, said["format"]):
        raise ImageRefused(f"its format is {said['format']}, and the catalogue states {stated}")
    if "backing-filename" in said or "full-backing-filename" in said or "data-file" in data:
        raise ImageRefused("it names another file as its backing or data file")
    if "encrypt" in data:
        raise ImageRefused("it is encrypted")
    if said["virtual-size"] > virtual_bytes_max:
        raise ImageTooLarge(f"it has {said['virtual-size']} bytes when unpacked; the disk has {virtual_bytes_max}")
    return ImageFacts(said["format"], said["virtual-size"])


def create_disk(disk: Path, key: Path, base: Path, base_format: str, size_bytes: int) -> None:
    """Make the key and the disk, unless they are there. The disk appears whole or not at all. Raises OSError."""
    make_key(key)
    if disk.exists():
        return
    aside = disk.with_name(f".{disk.name}.{secrets.token_hex(4)}")
    try:
        format_disk(aside, key, base, base_format, size_bytes)
        aside.rename(disk)
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(disk.parent)


def make_key(key: Path) -> None:
    """Make the key of a disk, unless it is there. Raises OSError."""
    if not key.exists():
        write_durably(key, base64.b64encode(os.urandom(48)))


def format_disk(target: Path, key: Path, base: Path, base_format: str, size_bytes: int) -> None:
    """Write an encrypted overlay to a new file, or to a block device. Raises OSError."""
    _measuring(
        "create", "-q", "-f", "qcow2", "--object", f"secret,id=key,file={key}", "-F", base_format, "-b", str(base),
        "-o", _ENCRYPTED, str(target), str(size_bytes),
    )  # fmt: skip


def full_bytes(key: Path, size_bytes: int) -> int:
    """How large such a disk is once its guest has written all of it, as QEMU computes it. Raises OSError."""
    said = _measuring(
        "measure", "--output=json", "--object", f"secret,id=key,file={key}", "-O", "qcow2", "-o", _ENCRYPTED,
        "--size", str(size_bytes),
    )  # fmt: skip
    return int(json.loads(said)["fully-allocated"])


@dataclass(frozen=True)
class Overwritten:
    """What was overwritten with zeros, and read back past the page cache where the file system allows it."""

    bytes: int
    samples: int
    direct: bool

    def as_evidence(self) -> JsonObject:
        """For `DeviceWipe.checked`."""
        return {"overwritten_bytes": self.bytes, "samples_read_back": self.samples, "past_the_page_cache": self.direct}


def overwrite(file: Path, stop: threading.Event, mark: Callable[[], None] | None = None) -> Overwritten:
    """Overwrite what the file occupies and prove it by reading back; needs no free space on a file system that writes in place.

    `mark` records the proof, and may rename the file: it is called once samples were zero, and before the file is emptied, as
    nothing can be read back of an empty one. A missing file is fine. Raises OSError if a sample is not zero, or once `stop`
    is set.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return Overwritten(0, 0, False)
    try:
        written = 0
        places: list[int] = []
        for start, length in _occupied(descriptor):
            if stop.is_set():
                raise InterruptedError("the wipe was interrupted")
            _zero(descriptor, start, length)
            written += length
            places.append(start + secrets.randbelow(length))
        os.fsync(descriptor)
        step = max(1, len(places) // SAMPLES_MAX)
        sampled = places[::step]
        direct = _all_zero(file, sampled)
        if mark is not None and sampled:
            mark()
        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Overwritten(written, len(sampled), direct)


def _zero(descriptor: int, start: int, length: int) -> None:
    """Write zeros to the whole piece, also where a write is cut short."""
    end = start + length
    while start < end:
        start += os.pwrite(descriptor, bytes(end - start), start)


def _occupied(descriptor: int) -> Iterator[tuple[int, int]]:
    """The pieces of a sparse file that hold data."""
    at, size = 0, os.fstat(descriptor).st_size
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # ENXIO: no data behind this place
            return
        at = os.lseek(descriptor, start, os.SEEK_HOLE)
        while start < at:
            length = min(CHUNK_BYTES, at - start)
            yield start, length
            start += length


def _all_zero(file: Path, places: list[int]) -> bool:
    """Raise OSError unless the page at each place is zero; return whether they were read past the page cache."""
    direct = True
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        direct, descriptor = False, os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            for place in places:
                length = os.preadv(descriptor, [page], place - place % mmap.PAGESIZE)
                if page[:length].strip(b"\0"):
                    raise OSError(f"{file.name} is not zero at {place} after it was overwritten")
    finally:
        os.close(descriptor)
    return direct


def end_strays(directory: Path, kill: Callable[[Path], bool]) -> None:
    """End qemu-img processes that an earlier agent left, and remove what they had half-made. Raises OSError."""
    kill(directory)
    for aside in directory.glob("*/.disk.qcow2.*"):
        with suppress(FileNotFoundError):
            aside.unlink()


def _measuring(*arguments: str) -> str:
    """`qemu-img`, again if QEMU could not measure its speed: with SHA-256 one in eight ends so, within a tick."""
    for _ in range(CREATE_TRIES_MAX - 1):
        try:
            return _qemu_img(*arguments)
        except OSError as error:
            if UNMEASURED not in str(error):
                raise
    return _qemu_img(*arguments)


def _qemu_img(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["qemu-img", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=QEMU_IMG_SECONDS_MAX, umask=0o077,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise OSError(f"qemu-img {arguments[0]} did not end within {QEMU_IMG_SECONDS_MAX} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or f"exit status {done.returncode}")[-500:]
        raise OSError(f"qemu-img {arguments[0]}: {said}")
    return done.stdout
