"""Methods to erase a disk, best first: which ones a disk claims, and their commands. `level_of` (node_agent/wiping/devices.py)
says what each is worth by NIST SP 800-88.

A method counts only after its effect was read back (`erasing.py`): hdparm and sg_format report success with every byte in place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from berth.process.json_objects import JsonObject
from node_agent.deploy_system.effects.contract import Host
from node_agent.deploy_system.effects.disks import FoundDisk
from node_agent.discovery.reading import Gaps, Tree
from node_agent.wire.fields import INTEGER_MAX

OVERWRITE: Final = "overwrite"
_ASK_SECONDS: Final = 30.0


@dataclass(frozen=True)
class EraseMethod:
    """A method with its commands, run in order; all must end with 0. `awaits` asks until the device has ended by itself."""

    name: str
    commands: Sequence[Sequence[str]]
    awaits: Sequence[str] | None = None


def claimed_methods(host: Host, disk: FoundDisk) -> list[EraseMethod]:
    """The ladder of this disk, best first, without the overwrite that ends every ladder."""
    device = str(disk.path)
    methods: list[EraseMethod] = []
    if disk.kind == "nvme":
        methods += _nvme(host, disk)
    elif disk.kind in ("sata", "usb"):
        methods += _ata(host, device)
    elif disk.kind == "scsi":
        methods += [
            EraseMethod("scsi_sanitize_crypto", [["sg_sanitize", "--crypto", "--quick", "--wait", device]]),
            EraseMethod("scsi_sanitize_block", [["sg_sanitize", "--block", "--quick", "--wait", device]]),
        ]
    return [*methods, *_kernel(host, disk)]


def _kernel(host: Host, disk: FoundDisk) -> Iterator[EraseMethod]:
    tree = Tree(host.sys, Gaps())
    device = str(disk.path)
    zeroes = ["blkdiscard", "-f", "-z", device]
    if tree.number(f"block/{disk.name}/queue/discard_max_bytes", INTEGER_MAX):
        # First the discard, which frees the blocks of thin storage; then zeroes, as what was discarded need not read as zero.
        yield EraseMethod("discard_zero_out", [["blkdiscard", "-f", device], zeroes])
    elif tree.number(f"block/{disk.name}/queue/write_zeroes_max_bytes", INTEGER_MAX):
        yield EraseMethod("zero_out", [zeroes])


def _nvme(host: Host, disk: FoundDisk) -> Iterator[EraseMethod]:
    device = str(disk.path)
    controller = re.sub(r"n\d+$", "", device)
    claims = _json(host, ["nvme", "id-ctrl", controller, "-o", "json"])
    sanitize, admin, formats = (_bits(claims, name) for name in ("sanicap", "oacs", "fna"))
    status = ["nvme", "sanitize-log", controller, "-o", "json"]
    if sanitize & 1:
        yield EraseMethod("nvme_sanitize_crypto", [["nvme", "sanitize", controller, "-a", "4"]], status)
    if sanitize & 2:
        yield EraseMethod("nvme_sanitize_block", [["nvme", "sanitize", controller, "-a", "2"]], status)
    if admin & 2:
        if formats & 4:
            yield EraseMethod("nvme_format_crypto", [["nvme", "format", device, "-s", "2", "-f"]])
        yield EraseMethod("nvme_format_user_data", [["nvme", "format", device, "-s", "1", "-f"]])


def _ata(host: Host, device: str) -> Iterator[EraseMethod]:
    claims = host.run(["hdparm", "-I", device], _ASK_SECONDS).output
    sure = ["hdparm", "--yes-i-know-what-i-am-doing"]
    if "CRYPTO_SCRAMBLE_EXT" in claims:
        yield EraseMethod(
            "ata_sanitize_crypto",
            [[*sure, "--sanitize-crypto-scramble", device]],
            ["hdparm", "--sanitize-status", device],
        )
    if "BLOCK_ERASE_EXT" in claims:
        yield EraseMethod(
            "ata_sanitize_block", [[*sure, "--sanitize-block-erase", device]], ["hdparm", "--sanitize-status", device]
        )
    # A drive whose security is frozen refuses.
    if re.search(r"^\s*supported$", claims.partition("Security:")[2], re.MULTILINE) and "not\tfrozen" in claims:
        password = ["hdparm", "--user-master", "u", "--security-set-pass", "berth", device]
        enhanced = "supported: enhanced erase" in claims
        erase = "--security-erase-enhanced" if enhanced else "--security-erase"
        name = "ata_secure_erase_enhanced" if enhanced else "ata_secure_erase"
        yield EraseMethod(name, [password, ["hdparm", "--user-master", "u", erase, "berth", device]])


def unlock_command(method: str, disk: FoundDisk) -> list[str] | None:
    """Removes the password that a refused secure erase left; None for other methods."""
    if not method.startswith("ata_secure_erase"):
        return None
    return ["hdparm", "--user-master", "u", "--security-disable", "berth", str(disk.path)]


def has_ended(output: str) -> bool:
    """Whether a status, of `nvme sanitize-log` or `hdparm --sanitize-status`, says that nothing is under way."""
    if found := re.search(r'"sstat"\s*:\s*(\d+)', output):
        return int(found[1]) & 7 != 2  # NVMe base specification 2.0, figure 290: 2 is in progress
    return "in progress" not in output.lower()


def _json(host: Host, command: Sequence[str]) -> JsonObject:
    run = host.run(command, _ASK_SECONDS)
    try:
        answer = json.loads(run.output) if run.status == 0 else {}
    except ValueError:
        answer = {}
    return answer if isinstance(answer, dict) else {}


def _bits(claims: JsonObject, name: str) -> int:
    value = claims.get(name, 0)
    return value if isinstance(value, int) else 0
