"""The deploy medium of one boot, with the test's driver in place of the loop."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from node_agent.media.medium import CommonMedium
from node_agent.wire.deploy_medium import DeployMedium

DRIVER = Path(__file__).with_name("guest_driver.py")


def with_driver(medium: Path, directory: Path) -> Path:
    """A copy of the medium whose initramfs has the driver as `node_agent/__main__.py`."""
    tree = directory / "overlay/opt/berth/node_agent"
    (tree / "__pycache__").mkdir(parents=True)
    shutil.copy(DRIVER, tree / "__main__.py")
    (tree / "__pycache__/__main__.cpython-311.pyc").touch()  # empty: the source is compiled
    return _with_overlay(medium, directory)


def with_root_keys(medium: Path, directory: Path, root_keys: Path) -> Path:
    """A copy of the medium that trusts these roots, as `make deploy-medium ROOT_KEYS=FILE` builds it."""
    tree = directory / "overlay/etc/berth"
    tree.mkdir(parents=True)
    shutil.copy(root_keys, tree / "root-keys.pem")
    return _with_overlay(medium, directory)


def _with_overlay(medium: Path, directory: Path) -> Path:
    """A copy of the medium whose initramfs has what is in `overlay`: a second archive behind the first."""
    made, initrd = directory / "with-overlay.iso", directory / "initrd"
    subprocess.run(
        ["xorriso", "-osirrox", "on", "-indev", str(medium), "-extract", "/boot/initrd", str(initrd)],
        check=True, capture_output=True,
    )  # fmt: skip
    names = subprocess.run(["find", "."], cwd=directory / "overlay", capture_output=True, check=True).stdout
    archive = subprocess.run(
        ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"],
        cwd=directory / "overlay", input=names, capture_output=True, check=True,
    ).stdout  # fmt: skip
    initrd.chmod(0o600)
    with initrd.open("ab") as file:
        file.write(bytes(-file.tell() % 4) + archive)
    subprocess.run(
        ["xorriso", "-indev", str(medium), "-outdev", str(made), "-boot_image", "any", "replay",
         "-update", str(initrd), "/boot/initrd", "-commit"],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


def own_medium(common: Path, configuration: DeployMedium, out: Path) -> Path:
    """The bytes that the media server would send for this configuration."""
    with CommonMedium(common) as medium, out.open("wb") as file:
        for start in range(0, medium.size_bytes, 2**22):
            length = min(2**22, medium.size_bytes - start)
            file.write(medium.read(configuration.written(), start, length))
        os.fsync(file.fileno())
    return out
