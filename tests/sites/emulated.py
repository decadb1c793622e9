"""A stage for a machine of QEMU: its deploy system reaches both listeners at the host's address in QEMU's user network."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.local.authority import name_listeners
from berth.local.machines.media import with_root_keys
from berth.local.machines.networks import HOST
from berth.local.servers import LocalPostgres
from node_agent.redfish.contract import BmcAccess
from tests.api.calling import Caller
from tests.databases import copied_database
from tests.metal.lab import MEDIUM
from tests.redfish.emulator import emulated
from tests.sites.stage import Site, Stage
from tests.support.waiting import WAIT_SECONDS_MAX


class EmulatedStage(Stage):
    """The public listener over TLS, and agents of sites that enrol by it."""

    round_seconds = 1.0

    def __init__(self, url: str, directory: Path) -> None:
        super().__init__(url, directory)
        name_listeners(self.authority, (HOST,))
        self.api_url = f"https://127.0.0.1:{self.endpoints.public_port}"
        trusted = ssl.create_default_context(cafile=str(self.authority.ca_certificate))
        self.http = httpx.Client(base_url=self.api_url, verify=trusted, timeout=WAIT_SECONDS_MAX)
        self.admin = Caller(self.http, self.admin.key)

    def settings(self) -> dict[str, str]:
        """Of both listeners."""
        return {
            **super().settings(),
            "BERTH_PUBLIC_TLS_CERTIFICATE_FILE": str(self.authority.listener_certificate),
            "BERTH_PUBLIC_TLS_KEY_FILE": str(self.authority.listener_key),
            "BERTH_PUBLIC_API_URL": f"https://{HOST}:{self.endpoints.public_port}",
            "BERTH_NODE_API_URL": f"https://{HOST}:{self.endpoints.node_port}",
        }

    def agent_settings(self) -> dict[str, str]:
        """Of one more agent."""
        ca, node_api = str(self.authority.ca_certificate), self.endpoints.node_api_url
        return {**super().agent_settings(), "BERTH_API_CA_FILE": ca, "BERTH_NODE_API_URL": node_api}


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
