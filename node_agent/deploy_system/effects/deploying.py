"""`metal.deploy`: an image on the root disk, written, read back, grown, with a config drive and a boot entry.

Until everything was written and compared the disk has no partition table: a deploy that is killed leaves nothing that boots.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from node_agent.deploy_system.effects import config_drive
from node_agent.deploy_system.effects.boot_entries import set_boot_entry
from node_agent.deploy_system.effects.contract import Host, ImageStream, Progress
from node_agent.deploy_system.effects.data_disks import prepare_data_disk
from node_agent.deploy_system.effects.disks import FoundDisk, found_disks, only_disk
from node_agent.deploy_system.effects.image_stream import FetchBroke, ImageSource, NotRaw, plain
from node_agent.deploy_system.effects.partitions import Extended, TableFull, TableUnusable, extend_table
from node_agent.deploy_system.effects.raw_disk import CHUNK_BYTES, RawDisk
from node_agent.deploy_system.effects.steps import Step, step
from node_agent.wire.deploy_tasks import DeployFailureCode, DiskIdentity, MetalDeployParameters, MetalDeployReport
from node_agent.wire.images import ImageFormat

_DISCARD_SECONDS: Final = 300.0
_TAIL_BYTES: Final = 2**20
"""Where an earlier GPT has its backup."""


@dataclass(frozen=True)
class Written:
    """What was fetched, and what was written."""

    fetched_sha256: str
    sha256: str


def deploy(
    host: Host, parameters: MetalDeployParameters, progress: Progress, open_image: ImageStream
) -> MetalDeployReport:
    """Deploy the machine. Nothing is written before root disk and data disks are found. Raises WorkFailed, Interrupted."""
    began = host.monotonic()
    with step(host, progress, "find_disks") as finding:
        found = found_disks(host)
        root = only_disk(found, parameters.root_disk, finding)
        data = [(only_disk(found, wanted, finding), wanted) for wanted in parameters.data_disks]
        if parameters.image_bytes + 2 * config_drive.CONFIG_DRIVE_BYTES > root.size_bytes:
            raise finding.failed(
                DeployFailureCode.IMAGE_DOES_NOT_FIT, f"{root}: the image has {parameters.image_bytes} bytes"
            )
        if parameters.image.format is ImageFormat.QCOW2:
            raise finding.failed(DeployFailureCode.IMAGE_UNUSABLE, "qcow2 is not written to disks; publish it as raw")
    with step(host, progress, "write_image", str(root), parameters.image_bytes) as writing:
        written = _write_image(host, parameters, root, writing, open_image)
    with step(host, progress, "read_back", str(root), parameters.image_bytes) as reading:
        _compare(root, parameters.image_bytes, written.sha256, reading)
    key = config_drive.new_host_key()
    volume = config_drive.volume(parameters.config_drive, parameters.image.login_user, key)
    with step(host, progress, "partition", str(root)) as partitioning:
        table = _extend(root, parameters.grow_root, partitioning)
    with step(host, progress, "config_drive", str(root)) as driving:
        _write_config_drive(root, table.config_start_bytes, volume, driving)
    kept = []
    for disk, wanted in data:
        with step(host, progress, "data_disks", str(disk), disk.size_bytes) as preparing:
            kept.append(prepare_data_disk(host, disk, wanted, preparing))
    entry = None
    if parameters.boot_entry and host.efi_variables.is_dir():
        with step(host, progress, "boot_entry", str(root)) as entering:
            entry = _boot_entry(host, table, entering)
    return MetalDeployReport(
        root_disk=DiskIdentity(serial=root.serial, size_bytes=root.size_bytes),
        image_sha256=written.fetched_sha256, written_bytes=parameters.image_bytes, written_sha256=written.sha256,
        grown_bytes=table.grown_bytes if parameters.grow_root else None,
        config_drive_sha256=hashlib.sha256(volume).hexdigest(), host_key=key.public, boot_entry=entry,
        data_disks=kept, seconds=round(host.monotonic() - began, 3),
    )  # fmt: skip


def _write_image(
    host: Host, parameters: MetalDeployParameters, root: FoundDisk, writing: Step, open_image: ImageStream
) -> Written:
    """The first megabyte, with the partition table, is written last, and nothing before the image's first bytes have come."""
    with ExitStack() as stack:
        try:
            source = ImageSource(stack.enter_context(open_image(parameters.image.url)))
            source.require_raw()
        except (FetchBroke, OSError) as error:
            raise writing.failed(DeployFailureCode.IMAGE_DOWNLOAD_FAILED, str(error)[:400]) from error
        except NotRaw as error:
            raise writing.failed(DeployFailureCode.IMAGE_UNUSABLE, str(error)[:400]) from error
        # Frees what an earlier image had; a disk may refuse.
        host.run(["blkdiscard", "-f", str(root.path)], _DISCARD_SECONDS)
        disk = stack.enter_context(RawDisk(root.path, writable=True))
        disk.write(0, bytes(CHUNK_BYTES))
        disk.write(disk.size_bytes - _TAIL_BYTES, bytes(_TAIL_BYTES))
        disk.flush()
        head, digest = _receive(source, disk, parameters, writing)
        disk.flush()
        disk.write(0, head)
        disk.flush()
    return Written(source.sha256, digest)


def _receive(source: ImageSource, disk: RawDisk, parameters: MetalDeployParameters, writing: Step) -> tuple[bytes, str]:
    try:
        with plain(source) as content:
            head, digest = _copy(content, disk, parameters.image_bytes, writing)
    except FetchBroke as error:
        raise writing.failed(DeployFailureCode.IMAGE_DOWNLOAD_FAILED, str(error)[:400]) from error
    except NotRaw as error:
        raise writing.failed(DeployFailureCode.IMAGE_UNUSABLE, str(error)[:400]) from error
    if source.sha256 != parameters.image.sha256:
        raise writing.failed(
            DeployFailureCode.IMAGE_CHECKSUM_MISMATCH, f"{source.fetched_bytes} bytes have sha256 {source.sha256}"
        )
    return head, digest


def _copy(content: Iterator[bytes], disk: RawDisk, image_bytes: int, writing: Step) -> tuple[bytes, str]:
    """Write all but the first megabyte, which is returned with the digest of all."""
    digest, at, head = hashlib.sha256(), 0, b""
    for piece in _whole_chunks(content):
        writing.tick()
        if at + len(piece) > image_bytes:
            raise writing.failed(DeployFailureCode.IMAGE_UNUSABLE, f"the image is longer than its {image_bytes} bytes")
        digest.update(piece)
        if at == 0:
            head = piece
        else:
            disk.write(at, piece)
        at += len(piece)
    if at != image_bytes:
        raise writing.failed(DeployFailureCode.IMAGE_UNUSABLE, f"the image has {at} bytes instead of {image_bytes}")
    return head, digest.hexdigest()


def _whole_chunks(content: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of 1 MiB; the last one may be shorter."""
    held = bytearray()
    for piece in content:
        held += piece
        while len(held) >= CHUNK_BYTES:
            yield bytes(held[:CHUNK_BYTES])
            del held[:CHUNK_BYTES]
    if held:
        yield bytes(held)


def _compare(root: FoundDisk, image_bytes: int, written: str, reading: Step) -> None:
    digest = hashlib.sha256()
    with RawDisk(root.path) as disk:
        for _, piece in disk.chunks(0, image_bytes):
            reading.tick()
            digest.update(piece)
    if digest.hexdigest() != written:
        _forget(root)
        raise reading.failed(
            DeployFailureCode.READ_BACK_MISMATCH, f"{root}: sha256 {digest.hexdigest()} instead of {written}"
        )


def _forget(root: FoundDisk) -> None:
    """Overwrite the first megabyte, so that the disk does not boot."""
    with RawDisk(root.path, writable=True) as disk:
        disk.write(0, bytes(CHUNK_BYTES))
        disk.flush()


def _extend(root: FoundDisk, grow: bool, partitioning: Step) -> Extended:
    try:
        with RawDisk(root.path, writable=True) as disk:
            table = extend_table(disk, config_drive.CONFIG_DRIVE_BYTES, grow)
            disk.reread_partitions()
            return table
    except (TableUnusable, TableFull) as error:
        _forget(root)
        full = isinstance(error, TableFull)
        code = DeployFailureCode.IMAGE_DOES_NOT_FIT if full else DeployFailureCode.IMAGE_UNUSABLE
        raise partitioning.failed(code, str(error)) from error


def _write_config_drive(root: FoundDisk, start: int, volume: bytes, driving: Step) -> None:
    with RawDisk(root.path, writable=True) as disk:
        disk.write(start, volume)
        disk.flush()
        if disk.read(start, len(volume)) != volume:
            raise driving.failed(
                DeployFailureCode.READ_BACK_MISMATCH, f"{root}: the config drive is not what was written"
            )


def _boot_entry(host: Host, table: Extended, entering: Step) -> str:
    if table.esp is None:
        raise entering.failed(DeployFailureCode.BOOT_ENTRY_FAILED, "the image has no EFI system partition")
    try:
        return set_boot_entry(host, table.esp)
    except OSError as error:
        raise entering.failed(DeployFailureCode.BOOT_ENTRY_FAILED, str(error.strerror or error)) from error
