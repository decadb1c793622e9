"""`berth node inspect` of a machine of QEMU behind sushy-tools' BMC, with the real medium: from off to off."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.local.servers import LocalPostgres
from node_agent.redfish.contract import BmcAccess
from tests.databases import copied_database
from tests.metal.lab import MEDIUM
from tests.metal.media import with_root_keys
from tests.metal.qemu import MAC
from tests.metal.server import HOST
from tests.redfish.emulator import FIRMWARE, VARIABLES, defined, emulated
from tests.sites.emulated import EmulatedStage
from tests.sites.stage import Site
from tests.support.waiting import wait_for

# Quicker, without a guest: tests/sites/test_runs.py and tests/sites/test_killed_runs.py.
pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(900)]
DISK_BYTES = 64 << 20
RUN_SECONDS_MAX = 700.0


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    """The medium that `make deploy-medium` built; the test is skipped without it."""
    if not MEDIUM.exists():
        pytest.skip("BERTH_TEST_DEPLOY_MEDIUM names no deploy medium: make deploy-medium")
    for program in ("xorriso", "cpio", "virsh"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    return MEDIUM


@pytest.fixture
def machine(tmp_path: Path, medium: Path) -> Iterator[str]:
    """A domain that is off, with one empty disk and one port; its UUID."""
    variables = tmp_path / "machine" / "variables.fd"
    variables.parent.mkdir()
    shutil.copy(VARIABLES, variables)
    variables.chmod(0o666)
    system = (
        "<memory unit='MiB'>512</memory><os><type arch='x86_64' machine='q35'>hvm</type>"
        f"<loader readonly='yes' type='pflash'>{FIRMWARE}</loader><nvram>{variables}</nvram><boot dev='hd'/></os>"
    )
    devices = (
        f"<interface type='user'><mac address='{MAC}'/><model type='virtio'/></interface>"
        f"<serial type='file'><source path='{tmp_path}/machine/console'/></serial>"
        "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>"
    )
    with defined(variables.parent, system, devices, DISK_BYTES) as identity:
        yield identity


@pytest.fixture
def access(machine: str, tmp_path: Path) -> Iterator[BmcAccess]:
    """Its BMC."""
    directory = tmp_path / "bmc"
    directory.mkdir()
    with emulated(directory, machine) as found:
        yield found


@pytest.fixture
def stage(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path, medium: Path
) -> Iterator[EmulatedStage]:
    """The control plane, whose agents serve the medium with the roots of this stage."""
    directory = tmp_path / "stage"
    directory.mkdir()
    with copied_database(postgres_server, migrated_template) as url:
        stage = EmulatedStage(url, directory)
        stage.medium = with_root_keys(medium, tmp_path, stage.authority.root_keys)
        stage.start()
        try:
            yield stage
        finally:
            stage.close()


@pytest.fixture
def site(stage: EmulatedStage) -> Iterator[Site]:
    made = stage.site()
    made.agent("a")
    made.wait_for_holder("a")
    yield made
    made.stop()


def berth(stage: EmulatedStage, line: str) -> Any:
    """What `berth` prints for programs, in its own process: the stage's rounds write into the output of this one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    environment |= {"BERTH_API_URL": stage.api_url, "BERTH_API_KEY": stage.admin.key or ""}
    environment["SSL_CERT_FILE"] = str(stage.authority.ca_certificate)
    command = [sys.executable, "-m", "berth.cli", *shlex.split(line), "--output", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def virsh(*words: str) -> str:
    done = subprocess.run(["virsh", "-c", "qemu:///system", *words], capture_output=True, text=True, check=True)
    return done.stdout


def image_at(access: BmcAccess, machine: str) -> str | None:
    """What the BMC says is in the machine's CD drive."""
    url, login = f"{access.url}/redfish/v1/Systems/{machine}/VirtualMedia/Cd", (access.username, access.password)
    found = httpx.get(url, auth=login, verify=False, timeout=60).json()
    return str(found["Image"]) if found["Inserted"] else None


def test_a_machine_is_inspected_from_off_to_off(
    stage: EmulatedStage, site: Site, machine: str, access: BmcAccess, tmp_path: Path
) -> None:
    node = stage.node()

    def is_run(condition: str) -> bool:
        return bool(stage.fleet.one(f"select count(*) from deploy_runs where node_id = %s and {condition}", node))

    (tmp_path / "password").write_text(access.password)
    berth(stage, f"node cordon {node}")
    berth(
        stage,
        f"node bmc set {node} --site {site.name} --url {access.url} --username {access.username}"
        f" --certificate-sha256 {access.certificate_sha256} --password-file {tmp_path / 'password'}",
    )
    berth(stage, f"node bmc look {node}")
    assert stage.ended(node)["task"]["outcome"] == "completed"
    assert virsh("domstate", machine).strip() == "shut off"

    berth(stage, f"node inspect {node} --mac {MAC} --address 10.0.2.15/24 --gateway {HOST}")
    assert berth(stage, f"node inspect {node}")["outcome"] is None
    wait_for(lambda: is_run("step in ('work', 'end')"), "the deploy system starts", 400)
    image = image_at(access, machine)
    assert image is not None
    assert httpx.head(image).status_code == 200
    wait_for(lambda: is_run("ended_at is not null"), "the run ends", RUN_SECONDS_MAX)

    console = tmp_path / "machine" / "console"
    run = berth(stage, f"node run {node}")
    assert (run["outcome"], run["failure"]) == ("completed", None), console.read_text(errors="replace")[-3000:]
    assert virsh("domstate", machine).strip() == "shut off"
    assert "cdrom" not in virsh("domblklist", machine, "--details")
    assert image_at(access, machine) is None
    assert httpx.head(image).status_code == 404, "nothing is served after the end"
    found = berth(stage, f"node deploy-system {node}")["machine"]
    assert found["smbios_uuid"] == machine
    disks = found["report"]["topology"]["disks"]
    assert [(one["serial"], one["size_bytes"]) for one in disks] == [("DISK1", DISK_BYTES)]
    assert (tmp_path / "machine" / "disk.raw").read_bytes().count(0) == DISK_BYTES, "an inspection writes to no disk"
