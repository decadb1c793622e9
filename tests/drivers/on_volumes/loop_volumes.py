"""Stand-ins of LVM's programs whose volumes are loop devices, for guests on block devices where the kernel has no device mapper.

What LVM and the kernel do with thin volumes is proven by tests/kernels; here the driver, libvirt and QEMU are real.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("lvs", "lvcreate", "lvchange", "lvremove", "dmsetup", "thin_check")
_SCRIPT = r"""#!/bin/bash
# One program for all: its name says which. Each volume is a directory: file, tags, and loop, its device while it is active.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
group=@GROUP@ volumes=@DIRECTORY@/volumes
exec 9>@DIRECTORY@/lock; flock 9
activate() {
  [ -b "/dev/$group/$1" ] && return
  losetup --find --show "$volumes/$1/file" >"$volumes/$1/loop"
  mkdir -p "/dev/$group"; ln -sfn "$(cat "$volumes/$1/loop")" "/dev/$group/$1"
}
last=${!#} name= size= tags=() add=() activates=
while [ $# -gt 0 ]; do
  case $1 in
    --name) name=$2;; --virtualsize) size=${2%b};; --addtag) add+=("$2");; --activate) activates=$2;;
  esac
  shift
done
row() { printf '{'; while [ $# -gt 1 ]; do printf '"%s":"%s"' "$1" "$2"; shift 2; [ $# -lt 2 ] || printf ,; done; printf '}'; }
columns() {
  row lv_name "$1" lv_uuid u lv_size "$2" pool_lv "$3" origin "" lv_tags "$4" lv_layout "$5" zero zero data_percent 1.00 \
    metadata_percent 1.00 lv_health_status "" lv_active "$6" lv_device_open "" lv_check_needed "" lv_permissions writeable
}
case ${0##*/} in
  lvs)
    printf '{"report":[{"lv":['; columns disks 1099511627776 "" "" thin,pool active
    for volume in "$volumes"/*/; do
      [ -e "$volume/tags" ] || continue
      printf ,; columns "$(basename "$volume")" "$(stat -c %s "$volume/file")" disks "$(paste -sd, "$volume/tags")" thin,sparse \
        "$([ -e "$volume/loop" ] && echo active)"
    done
    echo ']}]}';;
  lvcreate)
    mkdir -p "$volumes/$name"; truncate -s "$size" "$volumes/$name/file"; printf '%s\n' "${add[@]}" >"$volumes/$name/tags"
    activate "$name";;
  lvchange)
    name=${last#*/}
    [ -e "$volumes/$name/tags" ] || { echo "  Failed to find logical volume \"$last\"" >&2; exit 5; }
    [ ${#add[@]} = 0 ] || printf '%s\n' "${add[@]}" >>"$volumes/$name/tags"
    [ -z "$activates" ] || activate "$name";;
  lvremove)
    name=${last#*/}
    [ -e "$volumes/$name/tags" ] || { echo "  Failed to find logical volume \"$last\"" >&2; exit 5; }
    [ ! -e "$volumes/$name/loop" ] || losetup --detach "$(cat "$volumes/$name/loop")"
    rm -f "/dev/$group/$name" "$volumes/$name/tags"; rmdir --ignore-fail-on-non-empty "/dev/$group" 2>/dev/null || true
    mv "$volumes/$name/file" "@DIRECTORY@/last"; rm -rf "$volumes/$name";;
  dmsetup)
    sectors=$(blockdev --getsz "$last"); echo "0 $sectors thin $sectors $((sectors - 1))";;
esac
"""


class LoopVolumes:
    """One volume group, below `directory`."""

    def __init__(self, directory: Path, group: str) -> None:
        self.group = group
        self.volumes = directory / "volumes"
        self.last = directory / "last"
        """What the volume that was removed last held."""
        self._programs = directory / "programs"
        self._directory = directory

    def install(self) -> None:
        """Make the programs, and put them before those of the machine."""
        self._programs.mkdir(parents=True, exist_ok=True)
        script = _SCRIPT.replace("@DIRECTORY@", str(self._directory)).replace("@GROUP@", self.group)
        for name in PROGRAMS:
            path = self._programs / name
            path.write_text(script)
            path.chmod(0o755)
        os.environ["PATH"] = f"{self._programs}:{os.environ['PATH']}"

    def names(self) -> list[str]:
        """The volumes that are there."""
        return sorted(path.parent.name for path in self.volumes.glob("*/tags"))

    def remove(self) -> None:
        """Give all loop devices back."""
        for loop in self.volumes.glob("*/loop"):
            if loop.read_text().strip():
                subprocess.run(["losetup", "--detach", loop.read_text().strip()], check=False, capture_output=True)
        shutil.rmtree(Path("/dev") / self.group, ignore_errors=True)
        shutil.rmtree(self._directory, ignore_errors=True)
