"""The rights of deploy/berth-agent-libvirt.conf are enough for a guest's whole life, and all of them are needed."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.drivers.libvirt_harness import LibvirtHarness, usable
from tests.libvirt_driver.life_of_a_guest import READINESS
from tests.libvirt_driver.service_rights import DROP_IN, NUMBERS, UNIT, setting

pytestmark = [pytest.mark.hardware, pytest.mark.timeout(600)]

SOCKET = Path("/run/libvirt/libvirt-sock")
GUESTS = Path("/var/tmp/berth-test-service")
# An account that every host has: libvirt's client requires an entry for its user.
ACCOUNT = pwd.getpwnam("daemon")


@contextmanager
def open_to_the_service() -> Iterator[Path]:
    """A directory of the service's user, and libvirtd's socket open to its group, as Debian's is to the group `libvirt`."""
    directory = GUESTS / str(os.getpid())
    shutil.rmtree(directory, ignore_errors=True)
    GUESTS.mkdir(mode=0o711, exist_ok=True)
    directory.mkdir(mode=0o711)
    os.chown(directory, ACCOUNT.pw_uid, ACCOUNT.pw_gid)
    before = SOCKET.stat()
    os.chown(SOCKET, before.st_uid, ACCOUNT.pw_gid)
    SOCKET.chmod(0o770)
    try:
        yield directory
    finally:
        SOCKET.chmod(before.st_mode & 0o777)
        os.chown(SOCKET, before.st_uid, before.st_gid)
        shutil.rmtree(directory, ignore_errors=True)


def live(*capabilities: str, seconds: str = "200") -> subprocess.CompletedProcess[str]:
    """The life of a guest with these capabilities."""
    usable(LibvirtHarness())
    with open_to_the_service() as directory:
        rights = (str(directory), str(ACCOUNT.pw_uid), str(ACCOUNT.pw_gid), *capabilities)
        return subprocess.run(
            [sys.executable, "-m", "tests.libvirt_driver.life_of_a_guest", *rights],
            capture_output=True, text=True, check=False, env={**os.environ, READINESS: seconds},
        )  # fmt: skip


def test_the_rights_of_the_service_are_enough() -> None:
    given = setting("AmbientCapabilities", UNIT, DROP_IN)
    assert setting("CapabilityBoundingSet", UNIT, DROP_IN) == given
    assert setting("NoNewPrivileges", UNIT, DROP_IN) == ["yes"]
    assert setting("UMask", UNIT, DROP_IN) == ["0077"], "as the life has it"
    done = live(*given)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    mask = sum(1 << NUMBERS[name] for name in given)
    assert set(said.pop("capabilities").items()) == {
        (name, mask) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    }
    assert said == {
        "uid": ACCOUNT.pw_uid, "devices": 13, "user": "tenant", "console": True, "attached": True, "restarted": True,
        "proven": [True], "left": [],
    }  # fmt: skip


@pytest.mark.parametrize("missing", ["CAP_DAC_OVERRIDE", "CAP_KILL"])
def test_without_one_of_them_a_guest_does_not_live(missing: str) -> None:
    given = [name for name in setting("AmbientCapabilities", UNIT, DROP_IN) if name != missing]
    done = live(*given, seconds="200" if missing == "CAP_KILL" else "15")
    assert done.returncode != 0
    assert "Permission denied" in done.stderr or "Operation not permitted" in done.stderr, done.stderr[-3000:]
