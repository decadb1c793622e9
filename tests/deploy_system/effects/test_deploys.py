"""A deploy writes to the disks that it was given and to no other, and leaves a disk that boots only if all was compared."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from node_agent.deploy_system.effects import deploying
from node_agent.deploy_system.effects.boot_entries import LOADER
from node_agent.deploy_system.effects.config_drive import CONFIG_DRIVE_BYTES
from node_agent.deploy_system.effects.contract import ImageStream, Interrupted, WorkFailed
from node_agent.deploy_system.effects.deploying import deploy
from node_agent.deploy_system.effects.iso9660 import iso9660
from node_agent.deploy_system.effects.partitions import extend_table
from node_agent.deploy_system.effects.raw_disk import RawDisk
from node_agent.deploy_system.effects.uefi_variables import GLOBAL
from node_agent.wire.deploy_tasks import MetalDeployParameters, MetalDeployReport
from tests.deploy_system.effects.images import gpt_image, mbr_image
from tests.deploy_system.effects.machines import DISK_BYTES, MIB, Machine, filled, identity, streaming

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ tenant"
ROOT = {"serial": "root", "size_bytes": DISK_BYTES}


def orders(content: bytes, served: bytes | None = None, **more: Any) -> MetalDeployParameters:
    document = {
        "deploy_epoch": 1,
        "root_disk": ROOT,
        "image": {"name": "x", "url": "https://images", "sha256": hashlib.sha256(served or content).hexdigest()},
        "image_bytes": len(content),
        "config_drive": {"hostname": "box", "instance_id": "i-1", "ssh_public_keys": [KEY]},
        **more,
    }
    return MetalDeployParameters.model_validate(document)


def deployed(machine: Machine, image: bytes, served: bytes | None = None, **more: Any) -> MetalDeployReport:
    return deploy(machine.host, orders(image, served, **more), machine.progress, streaming(served or image))


def failing(
    machine: Machine,
    parameters: MetalDeployParameters,
    stream: ImageStream,
) -> WorkFailed:
    with pytest.raises(WorkFailed) as caught:
        deploy(machine.host, parameters, machine.progress, stream)
    assert caught.value.next_step
    return caught.value


def config_drive_of(disk: Path) -> dict[str, str]:
    """The files of the last volume on the disk, by its root directory."""
    raw = disk.read_bytes()
    volume = raw[(raw.rindex(b"\1CD001\1\0") // MIB) * MIB :]
    assert volume[16 * 2048 + 40 :].startswith(b"cidata ")
    (at,) = struct.unpack_from("<I", volume, 16 * 2048 + 156 + 2)
    files, record = {}, at * 2048
    while length := volume[record]:
        start, size = (struct.unpack_from("<I", volume, record + offset)[0] for offset in (2, 10))
        name = volume[record + 33 : record + 33 + volume[record + 32]]
        if len(name) > 1:
            files[name.decode().removesuffix(".;1").lower()] = volume[start * 2048 : start * 2048 + size].decode()
        record += length
    return files


needs_sfdisk = pytest.mark.skipif(shutil.which("sfdisk") is None, reason="sfdisk is not installed")


@pytest.mark.skipif(not shutil.which("xorriso"), reason="xorriso is not installed")
def test_another_reader_finds_the_files_of_the_volume(tmp_path: Path) -> None:
    volume, out = tmp_path / "volume", tmp_path / "out"
    files = {"meta-data": b"a: 1\n", "user-data": b"x" * 5000, "vendor-data": b""}
    volume.write_bytes(iso9660("cidata", files))
    command = ["xorriso", "-osirrox", "on", "-indev", str(volume), "-extract", "/", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    assert {path.name.lower(): path.read_bytes() for path in out.iterdir()} == files


@needs_sfdisk
def test_an_image_is_written_grown_and_given_its_config_drive(machine: Machine) -> None:
    disk = machine.add_disk("vda", "root")
    filled(disk)
    image = gpt_image()
    report = deployed(machine, image, config_drive={
        "hostname": "box", "instance_id": "i-1", "ssh_public_keys": [KEY], "user_data": "#!/bin/sh\n\u00e9",
        "network": {"version": 2},
    })  # fmt: skip
    assert (report.image_sha256, report.written_sha256) == (hashlib.sha256(image).hexdigest(),) * 2
    table = json.loads(subprocess.run(["sfdisk", "-J", str(disk)], capture_output=True, check=True).stdout)[
        "partitiontable"
    ]
    esp, root, config = table["partitions"]
    assert root["start"] + root["size"] == config["start"]
    assert (config["start"] * 512 % MIB, config["size"] * 512) == (0, CONFIG_DRIVE_BYTES)
    assert report.grown_bytes == (root["size"] - 4096) * 512
    assert subprocess.run(["sfdisk", "--verify", str(disk)], capture_output=True, check=True).returncode == 0
    files = config_drive_of(disk)
    assert files["user-data"] == "#!/bin/sh\n\u00e9"
    assert KEY in files["meta-data"]
    assert report.host_key in files["vendor-data"]
    assert json.loads(files["network-config"]) == {"version": 2}
    written = disk.read_bytes()
    # Between table and grown partition's end the image is there byte for byte.
    assert written[MIB : 5 * MIB] == image[MIB : 5 * MIB]
    assert esp["start"] == 2048


def test_the_host_key_of_the_report_is_that_of_the_private_key_on_the_drive(machine: Machine, tmp_path: Path) -> None:
    disk = machine.add_disk("vda", "root")
    report = deployed(machine, gpt_image())
    vendor = config_drive_of(disk)["vendor-data"]
    block = re.search(r"ed25519_private: \|\n((?:    .*\n)+)", vendor)
    assert block is not None
    key = tmp_path / "key"
    key.write_text(re.sub(r"^    ", "", block[1], flags=re.MULTILINE))
    key.chmod(0o600)
    public = subprocess.run(["ssh-keygen", "-y", "-f", key], capture_output=True, text=True, check=True).stdout
    assert public.split()[:2] == report.host_key.split()[:2]


def test_a_compressed_image_is_decompressed_while_it_is_written(machine: Machine) -> None:
    disk = machine.add_disk("vda", "root")
    image = gpt_image()
    served = subprocess.run(["zstd", "-qc"], input=image, capture_output=True, check=True).stdout
    report = deployed(machine, image, served)
    assert report.image_sha256 == hashlib.sha256(served).hexdigest()
    assert report.written_sha256 == hashlib.sha256(image).hexdigest()
    assert disk.read_bytes()[MIB : 5 * MIB] == image[MIB : 5 * MIB]


@needs_sfdisk
def test_an_image_with_an_mbr_keeps_it(machine: Machine) -> None:
    disk = machine.add_disk("vda", "root")
    report = deployed(machine, mbr_image(), grow_root=False)
    table = json.loads(subprocess.run(["sfdisk", "-J", str(disk)], capture_output=True, check=True).stdout)[
        "partitiontable"
    ]
    assert [(part["size"], part["type"]) for part in table["partitions"]] == [(2048, "ef"), (8192, "83")]
    assert report.grown_bytes is None


@pytest.mark.parametrize("esp", [True, False])
def test_the_boot_entry_names_the_system_partition_and_is_put_first(machine: Machine, esp: bool) -> None:
    machine.add_disk("vda", "root")
    machine.add_variable(f"Boot0000-{GLOBAL}", b"firmware's own")
    machine.add_variable(f"BootOrder-{GLOBAL}", b"\0\0")
    if not esp:
        stream = streaming(image := gpt_image(esp=False))
        assert failing(machine, orders(image), stream).code == "boot_entry_failed"
        return
    assert deployed(machine, gpt_image()).boot_entry == "Boot0001"
    assert deployed(machine, gpt_image()).boot_entry == "Boot0001"  # an earlier one of ours is replaced
    order = (machine.host.efi_variables / f"BootOrder-{GLOBAL}").read_bytes()
    assert struct.unpack("<IHH", order) == (7, 1, 0)
    entry = (machine.host.efi_variables / f"Boot0001-{GLOBAL}").read_bytes()[4:]
    assert struct.unpack_from("<I", entry)[0] & 1
    number, start, sectors = struct.unpack_from("<IQQ", entry, 6 + len("Berth\0") * 2 + 4)
    assert (number, start, sectors) == (1, 2048, 4096)
    assert LOADER.encode("utf-16-le") in entry


def test_firmware_that_drops_the_boot_entry_fails_the_deploy(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add_disk("vda", "root")
    machine.add_variable(f"BootOrder-{GLOBAL}", b"\0\0")
    whole = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"" if "Boot0000" in path.name else whole(path))
    image = gpt_image()
    assert failing(machine, orders(image), streaming(image)).code == "boot_entry_failed"


@pytest.mark.parametrize(
    ("serials", "code"), [(["other"], "disk_missing"), (["root", "root"], "disk_ambiguous"), ([None], "disk_missing")]
)
def test_without_its_one_root_disk_nothing_is_written(machine: Machine, serials: list[str | None], code: str) -> None:
    disks = [machine.add_disk(f"vd{letter}", serial) for letter, serial in zip("ab", serials, strict=False)]
    for disk in disks:
        filled(disk)
    before = [disk.read_bytes() for disk in disks]
    image = gpt_image()
    assert failing(machine, orders(image), streaming(image)).code == code
    assert [disk.read_bytes() for disk in disks] == before


def test_data_disks_are_untouched_unless_asked(machine: Machine) -> None:
    machine.add_disk("vda", "root")
    kept, formatted, unnamed = (machine.add_disk(f"vd{letter}", f"data-{letter}") for letter in "bcd")
    for disk in (kept, formatted, unnamed):
        filled(disk)
    before = kept.read_bytes(), unnamed.read_bytes()
    report = deployed(machine, gpt_image(), data_disks=[
        {**identity("data-b").model_dump()},
        {**identity("data-c").model_dump(), "action": "format", "label": "scratch"},
    ])  # fmt: skip
    assert [disk.action for disk in report.data_disks] == ["keep", "format"]
    assert (kept.read_bytes(), unnamed.read_bytes()) == before
    probed = subprocess.run(["blkid", "-p", "-o", "export", formatted], capture_output=True, text=True, check=True)
    assert "LABEL=scratch" in probed.stdout


def bootable(disk: Path) -> bool:
    return disk.read_bytes()[510:512] == b"\x55\xaa"


@contextmanager
def breaking(url: str) -> Iterator[Iterator[bytes]]:
    def chunks() -> Iterator[bytes]:
        yield gpt_image()[: 3 * MIB]
        raise ConnectionResetError(104, "Connection reset by peer")

    yield chunks()


@contextmanager
def refusing(url: str) -> Iterator[Iterator[bytes]]:
    if url:
        raise ConnectionRefusedError(111, "Connection refused")
    yield iter(())


def test_a_server_that_refuses_leaves_the_disk_as_it_was(machine: Machine) -> None:
    disk = machine.add_disk("vda", "root")
    filled(disk)
    before = disk.read_bytes()
    assert failing(machine, orders(gpt_image()), refusing).code == "image_download_failed"
    assert failing(machine, orders(gpt_image()), streaming(b"")).code == "image_download_failed"
    assert disk.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("broken", "image_download_failed"),
        ("flipped", "image_checksum_mismatch"),
        ("long", "image_unusable"),
        ("short", "image_unusable"),
        ("qcow2", "image_unusable"),
        ("zstd", "image_unusable"),
        ("empty table", "image_unusable"),
        ("extended", "image_unusable"),
        ("damaged gpt", "image_unusable"),
    ],
)
def test_an_image_that_is_not_what_was_named_leaves_nothing_that_boots(
    machine: Machine, change: str, code: str
) -> None:
    disk = machine.add_disk("vda", "root")
    image = gpt_image()
    served = {
        "flipped": image[:-1] + bytes([image[-1] ^ 1]),
        "long": image + bytes(MIB),
        "short": image[:-MIB],
        "qcow2": b"QFI\xfb" + image,
        "zstd": b"\x28\xb5\x2f\xfd" + image,
    }.get(change, image)
    if change == "empty table":
        served = image = bytes(510) + b"\x55\xaa" + bytes(MIB)
    elif change == "extended":
        served = image = mbr_image(kinds=(0x83, 0x05))
    elif change == "damaged gpt":
        served = image = image[:1024] + bytes([image[1024] ^ 1]) + image[1025:]
    named = image if change == "flipped" else served
    parameters = orders(image, named)
    stream = breaking if change == "broken" else streaming(served)
    assert failing(machine, parameters, stream).code == code
    assert not bootable(disk)


def test_a_named_qcow2_image_is_refused_before_the_disk_is_opened(machine: Machine) -> None:
    disk = machine.add_disk("vda", "root")
    filled(disk)
    before = disk.read_bytes()
    image = gpt_image()
    named = {"name": "x", "url": "https://images", "sha256": "0" * 64, "format": "qcow2"}
    assert failing(machine, orders(image, image=named), streaming(image)).code == "image_unusable"
    assert disk.read_bytes() == before


def test_an_image_as_large_as_the_disk_does_not_fit(machine: Machine) -> None:
    machine.add_disk("vda", "root")
    image = gpt_image(DISK_BYTES)
    assert failing(machine, orders(image), streaming(image)).code == "image_does_not_fit"


def test_what_the_disk_does_not_keep_is_found_and_does_not_boot(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = machine.add_disk("vda", "root")
    write = RawDisk.write

    def losing(raw: RawDisk, start: int, data: bytes) -> None:
        write(raw, start, bytes(len(data)) if start == 2 * MIB else data)

    monkeypatch.setattr(RawDisk, "write", losing)
    image = gpt_image()
    assert failing(machine, orders(image), streaming(image)).code == "read_back_mismatch"
    assert not bootable(disk)


def test_a_deploy_that_was_stopped_left_nothing_that_boots_and_runs_again(machine: Machine) -> None:
    disk = machine.add_disk("vda", "root")
    image = gpt_image()

    @contextmanager
    def stopping(url: str) -> Iterator[Iterator[bytes]]:
        def chunks() -> Iterator[bytes]:
            yield image[: 3 * MIB]
            machine.stopped.set()
            yield image[3 * MIB :]

        yield chunks()

    with pytest.raises(Interrupted):
        deploy(machine.host, orders(image), machine.progress, stopping)
    assert not bootable(disk)
    machine.stopped.clear()
    deployed(machine, image)
    assert bootable(disk)


@needs_sfdisk
def test_a_gpt_is_whole_at_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever write is the last one before a power failure, one of the two copies is valid."""
    path = tmp_path / "disk"
    write = RawDisk.write
    for last in range(1, 6):
        path.write_bytes(gpt_image() + bytes(DISK_BYTES - 6 * MIB))
        done: list[int] = []

        def counting(raw: RawDisk, start: int, data: bytes, last: int = last, done: list[int] = done) -> None:
            if len(done) == last:
                raise OSError(5, "power failed")
            done.append(start)
            write(raw, start, data)

        monkeypatch.setattr(RawDisk, "write", counting)
        try:
            with RawDisk(path, writable=True) as disk:
                extend_table(disk, CONFIG_DRIVE_BYTES, grow=True)
        except OSError:
            pass
        read = subprocess.run(["sfdisk", "-J", path], capture_output=True, text=True)
        assert read.returncode == 0, (last, read.stderr)
        assert len(json.loads(read.stdout)["partitiontable"]["partitions"]) in (2, 3)


def test_the_first_megabyte_is_written_last(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add_disk("vda", "root")
    starts: list[int] = []
    write = RawDisk.write

    def noting(raw: RawDisk, start: int, data: bytes) -> None:
        starts.append(start)
        write(raw, start, data)

    monkeypatch.setattr(RawDisk, "write", noting)
    monkeypatch.setattr(deploying, "_extend", _ended)
    image = gpt_image()
    with pytest.raises(_Ended):
        deploy(machine.host, orders(image), machine.progress, streaming(image))
    assert starts == [0, DISK_BYTES - MIB, *range(MIB, 6 * MIB, MIB), 0]


class _Ended(Exception):
    pass


def _ended(*_: object) -> None:
    raise _Ended
