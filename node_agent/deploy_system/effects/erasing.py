"""Erases one disk: markers first, then each method that it claims until only zeroes are read back, then the overwrite.

A crypto erase leaves other bytes than zeroes. Where no marker is among them, the method has purged the disk; zeroes are then
written over them, so that all that is read can be proven, and the proof names the purge.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from node_agent.deploy_system.effects.contract import Host, Progress
from node_agent.deploy_system.effects.disks import FoundDisk
from node_agent.deploy_system.effects.methods import (
    OVERWRITE,
    EraseMethod,
    claimed_methods,
    has_ended,
    unlock_command,
)
from node_agent.deploy_system.effects.raw_disk import CHUNK_BYTES, RawDisk
from node_agent.deploy_system.effects.steps import Step, step
from node_agent.discovery.reading import printable
from node_agent.wiping.devices import WipeLevel, level_of
from node_agent.wire.deploy_tasks import ATTEMPTS_MAX, DETAIL_MAX, DeployFailureCode, MetalDiskWipe, WipeAttempt

WHOLE_READ_BYTES_MAX: Final = 4 * 2**30
"""A disk of at most this size is read as a whole; of a larger one, samples of 1 MiB are."""
SAMPLES: Final = 512
MARKER_BYTES: Final = 4096
MARKERS: Final = 64
_STATUS_PAUSE_SECONDS: Final = 2.0


@dataclass
class Found:
    """What a read-back found."""

    read_bytes: int = 0
    nonzero: bool = False
    markers: int = 0


@dataclass(frozen=True)
class Markers:
    """Random blocks planted on the disk before its wipe, and byte strings that the task names."""

    planted: dict[int, bytes]
    named: Sequence[bytes] = field(default_factory=list)


def erase(host: Host, progress: Progress, disk: FoundDisk, named: Sequence[bytes]) -> MetalDiskWipe:
    """Erase the disk and prove it. Raises WorkFailed: `wipe_not_proven` if content is left after the overwrite, `disk_error`."""
    began = host.monotonic()
    with step(host, progress, "plant_markers", str(disk), MARKERS * CHUNK_BYTES) as planting:
        markers = Markers(plant(disk, planting), named)
    attempts: list[WipeAttempt] = []
    purge: str | None = None
    for method in claimed_methods(host, disk)[: ATTEMPTS_MAX - 1]:
        if purge is not None and level_of(method.name) is WipeLevel.PURGE:
            continue
        with step(host, progress, "erase", f"{disk} by {method.name}", disk.size_bytes) as erasing:
            attempt = _perform(host, method, disk, erasing)
        attempts.append(attempt)
        if not attempt.accepted:
            continue
        found = _look(host, progress, disk, markers)
        if not found.nonzero:
            return _proof(host, disk, attempts, purge or method.name, found, began)
        if not found.markers and level_of(method.name) is WipeLevel.PURGE:
            purge = method.name
    _overwrite(host, progress, disk)
    attempts.append(WipeAttempt(method=OVERWRITE, accepted=True))
    found = _look(host, progress, disk, markers)
    if found.nonzero:
        with step(host, progress, "verify_wipe", str(disk)) as verifying:
            tried = ", ".join(attempt.method for attempt in attempts)
            raise verifying.failed(
                DeployFailureCode.WIPE_NOT_PROVEN,
                f"{disk}: {found.markers} markers and other bytes are left after {tried}",
            )
    return _proof(host, disk, attempts, purge or OVERWRITE, found, began)


def plant(disk: FoundDisk, planting: Step) -> dict[int, bytes]:
    """Write a random block at each of 64 places, the first and the last of the disk among them, and read each back.

    Raises WorkFailed with `disk_error` if the disk does not take one: a write-protected disk cannot be wiped.
    """
    blocks = disk.size_bytes // MARKER_BYTES
    count = min(MARKERS, blocks)
    places = {index * (blocks - 1) // max(1, count - 1) * MARKER_BYTES for index in range(count)}
    planted = {}
    with RawDisk(disk.path, writable=True) as raw:
        for place in sorted(places):
            planting.tick()
            planted[place] = os.urandom(MARKER_BYTES)
            raw.write(place, planted[place])
        raw.flush()
        for place, marker in planted.items():
            if raw.read(place, MARKER_BYTES) != marker:
                raise planting.failed(DeployFailureCode.DISK_ERROR, f"{disk}: byte {place} is not what was written")
    return planted


def look(disk: FoundDisk, markers: Markers, looking: Step) -> Found:
    """Read the whole disk, or the planted places and random samples, and search for markers."""
    found = Found()
    seen: set[int] = set()
    zeroes = memoryview(bytes(CHUNK_BYTES))
    with RawDisk(disk.path) as raw:
        for start, length in _places(disk, markers):
            for at, piece in raw.chunks(start, length):
                looking.tick()
                found.read_bytes += len(piece)
                if piece == zeroes[: len(piece)]:
                    continue
                found.nonzero = True
                held = bytes(piece)
                inside = (place for place in markers.planted if at <= place < at + len(held))
                seen.update(place for place in inside if held[place - at :].startswith(markers.planted[place]))
                found.markers += sum(held.count(word) for word in markers.named)
    found.markers += len(seen)
    return found


def _places(disk: FoundDisk, markers: Markers) -> list[tuple[int, int]]:
    if disk.size_bytes <= WHOLE_READ_BYTES_MAX:
        return [(0, disk.size_bytes)]
    chunks = disk.size_bytes // CHUNK_BYTES
    samples = {random.SystemRandom().randrange(chunks) * CHUNK_BYTES for _ in range(SAMPLES)}
    samples |= {place // CHUNK_BYTES * CHUNK_BYTES for place in markers.planted}
    return [(start, CHUNK_BYTES) for start in sorted(samples | {0, (chunks - 1) * CHUNK_BYTES})]


def _perform(host: Host, method: EraseMethod, disk: FoundDisk, erasing: Step) -> WipeAttempt:
    for command in method.commands:
        erasing.tick()
        run = host.run(command, erasing.seconds_left)
        if run.status != 0:
            if unlock := unlock_command(method.name, disk):
                host.run(unlock, 30.0)
            return _attempt(method.name, False, f"status {run.status}: {run.output[-150:]}")
    while method.awaits is not None and not has_ended(host.run(method.awaits, 60.0).output):
        erasing.tick()
        time.sleep(_STATUS_PAUSE_SECONDS)
    return _attempt(method.name, True, "")


def _attempt(name: str, accepted: bool, detail: str) -> WipeAttempt:
    return WipeAttempt(method=name, accepted=accepted, detail=printable(detail)[:DETAIL_MAX])


def _look(host: Host, progress: Progress, disk: FoundDisk, markers: Markers) -> Found:
    volume = min(disk.size_bytes, WHOLE_READ_BYTES_MAX)
    with step(host, progress, "verify_wipe", str(disk), volume) as looking:
        return look(disk, markers, looking)


def _overwrite(host: Host, progress: Progress, disk: FoundDisk) -> None:
    with step(host, progress, "overwrite", str(disk), disk.size_bytes) as writing, RawDisk(disk.path, True) as raw:
        at = 0
        while at < disk.size_bytes:
            writing.tick()
            at += raw.fill(at, disk.size_bytes - at)
        raw.flush()


def _proof(
    host: Host, disk: FoundDisk, attempts: list[WipeAttempt], method: str, found: Found, began: float
) -> MetalDiskWipe:
    return MetalDiskWipe(
        serial=disk.serial, size_bytes=disk.size_bytes, name=disk.name, attempts=attempts, method=method,
        read_bytes=found.read_bytes, nonzero_bytes_found=found.nonzero, markers_found=found.markers,
        seconds=round(host.monotonic() - began, 3),
    )  # fmt: skip
