"""The libvirt driver under the suite: real guests of QEMU on a libvirtd of the tests' own (`make test-hardware`)."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from node_agent.drivers.choice import choose_driver
from node_agent.drivers.contract import Driver, Verb
from node_agent.settings import Settings
from tests.drivers.harness import Harness, Probe
from tests.drivers.harness import Tenant as AnyTenant
from tests.drivers.libvirt_probe import LibvirtProbe
from tests.drivers.seams import EFFECT
from tests.node_agent.agents import Tenant

IMAGE_VARIABLE = "BERTH_TEST_GUEST_IMAGE"
"""Set by `make test-hardware`, inside of `deploy/guests/private-libvirtd`."""
GUESTS = Path("/var/tmp/berth-test-guests")  # pytest's directories cannot be traversed by QEMU's users
STARTING = ("boot", "ready", "ssh_ready")
UP = ("image", "disk", "seed", *STARTING)
CALLS = ("define", "start", "press_power_button", "destroy", "remove")


class MiniGuests(Tenant):
    """A tenant whose every provision boots another image: the mini guest with other bytes behind its end."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._mini = Path(os.environ[IMAGE_VARIABLE]).read_bytes()

    def provision(self, slots: list[int], **changes: Any) -> dict[str, Any]:
        self.image = self.image.with_name(f"image-{uuid.uuid4().hex}.qcow2")
        self.image.write_bytes(self._mini + os.urandom(16))
        self.image_sha256 = hashlib.sha256(self.image.read_bytes()).hexdigest()
        return super().provision(slots, **changes)


class LibvirtHarness(Harness):
    name = "libvirt"
    marks: tuple[pytest.MarkDecorator, ...] = (pytest.mark.hardware,)
    provision_phases = ("lease", *UP)
    release_phases = ("guest_stopped", "wiped", "leases_released")
    verbs = {  # noqa: RUF012 - as declared by the base
        Verb.STOP: ("guest_stopped",),
        Verb.START: STARTING,
        Verb.REBOOT: ("guest_stopped", *STARTING),
        Verb.REBUILD: ("guest_stopped", "wiped", "lease", *UP),
    }
    small_disk_bytes = 96 << 20

    def unavailable(self) -> str | None:
        if importlib.util.find_spec("libvirt") is None:
            return "the packages of requirements-libvirt.lock are not installed"
        return None if IMAGE_VARIABLE in os.environ else "it runs in `make test-hardware`"

    def driver(self, settings: Settings) -> Driver:
        changes = {
            "agent_driver": "libvirt", "guest_dir": self.directory(settings.agent_state_dir),
            "guest_memory_bytes": 96 << 20, "guest_processors": 1, "guest_disk_bytes": 1 << 30,
            "agent_readiness_seconds": 80.0, "agent_image_cache_max": 2,
        }  # fmt: skip
        driver = choose_driver(settings.model_copy(update=changes))
        hypervisor = driver._hypervisor  # type: ignore[attr-defined]
        for name in CALLS:
            setattr(hypervisor, name, _announced(name, getattr(hypervisor, name)))
        return driver

    def directory(self, state_dir: Path) -> Path:
        return GUESTS / hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]

    def clean(self, state_dir: Path) -> None:
        import libvirt

        directory = self.directory(state_dir)
        connection = libvirt.open("qemu:///system")
        for domain in connection.listAllDomains():
            try:
                if str(directory) in domain.XMLDesc():
                    domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
            except libvirt.libvirtError as error:
                # Of another test, in another process, which has removed it since the list was made.
                if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                    raise
        connection.close()
        shutil.rmtree(directory, ignore_errors=True)

    def tenant(self, directory: Path) -> MiniGuests:
        return MiniGuests(directory)

    def probe(self, state_dir: Path, tenant: AnyTenant) -> Probe:
        assert isinstance(tenant, Tenant)
        return LibvirtProbe(self.directory(state_dir), tenant)


def _announced(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, seen by the seam as an effect before it happens."""

    def announced(*arguments: Any) -> Any:
        sys.audit(EFFECT, f"{name} {arguments[0]}")
        return call(*arguments)

    return announced


Usable = TypeVar("Usable", bound=LibvirtHarness)


def usable(made: Usable) -> Usable:
    """The harness, if a guest can run here; else the test is skipped, with what is missing as the reason."""
    if (reason := made.unavailable()) is not None:
        pytest.skip(f"no guest can run: {reason}")
    return made
