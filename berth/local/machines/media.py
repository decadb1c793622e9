"""A deploy medium that trusts other roots than the one it was built with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def with_root_keys(medium: Path, directory: Path, root_keys: Path) -> Path:
    """A copy of the medium that trusts these roots, as `make deploy-medium ROOT_KEYS=FILE` builds it."""
    tree = directory / "overlay/etc/berth"
    tree.mkdir(parents=True)
    shutil.copy(root_keys, tree / "root-keys.pem")
    return with_overlay(medium, directory)


def with_overlay(medium: Path, directory: Path) -> Path:
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
    initrd.unlink()
    return made
