"""A tenant's allocation on a machine of QEMU behind sushy-tools' BMC, with the real medium and the real agent of a site."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.local.machines.domains import console_devices, uefi_system
from berth.local.machines.images import image_served
from berth.local.machines.networks import HOST, port_arguments, reachable
from migrations.roles import Role
from node_agent.redfish.contract import BmcAccess
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.release import release_allocation
from orchestrator.allocations.commands.verbs import begin_verb, finish_verb, order_verb
from orchestrator.allocations.states import Verb
from orchestrator.operations.execution import Context, Limits
from orchestrator.operations.store.operations import Operation
from orchestrator.tasks.signing import load_signer
from tests.allocations.driving import TENANT
from tests.databases import as_role
from tests.metal.lab import GUEST_IMAGE
from tests.metal.qemu import MAC
from tests.placement.fleet import create_all, create_of, working
from tests.redfish.emulator import defined
from tests.sites.emulated import EmulatedStage, berth, virsh
from tests.sites.stage import Site
from tests.support.waiting import wait_for

DISK_BYTES = 512 << 20
ADDRESS = "10.0.2.15"
RUN_SECONDS_MAX = 1_800.0


@pytest.fixture
def machine(tmp_path: Path, medium: Path) -> Iterator[str]:
    """A domain that is off, with one empty disk; its port 22 is reached at its own address. Its UUID."""
    place = tmp_path / "machine"
    system, arguments = uefi_system(place), port_arguments(MAC, ADDRESS)
    with reachable([ADDRESS]), defined(place, system, console_devices(place), DISK_BYTES, arguments) as identity:
        yield identity


class Tenancy:
    """The tenant's allocation, and the commands of its workflow."""

    def __init__(self, stage: EmulatedStage, directory: Path) -> None:
        self.stage, self.key = stage, directory / "key"
        self.tenant = stage.fleet.tenant()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        public = self.key.with_suffix(".pub").read_text().strip()
        stage.fleet.connection.execute(
            "update ssh_keys set public_key = %s where id = %s", (public, self.tenant.ssh_key)
        )
        self.allocation = uuid.UUID(int=0)

    def run(self, work: Callable[[Context, Any], Any]) -> Any:
        """Run a command on the worker's role."""

        async def main() -> Any:
            async with working(as_role(self.stage.url, Role.WORKER)) as (context, catalogue):
                authority = self.stage.authority
                signer = load_signer(authority.task_signing_key, authority.key_set)
                return await work(Context(context.database, Limits(), signer), catalogue)

        return asyncio.run(main())

    def create(self) -> None:
        """A create, on the only machine in service, once its BMC answers: the emulator is slow at times."""

        async def main() -> Any:
            async with working(self.stage.url) as (context, catalogue):
                wanted = create_of(self.tenant, gpus=8, sku="h100.metal", region="us-1")
                return await create_all(context, catalogue, [wanted])

        def is_created() -> bool:
            (answer,) = asyncio.run(main())
            return bool(answer.status < 300)

        wait_for(is_created, "the machine takes an allocation", 60)
        self.allocation = uuid.UUID(str(self.stage.fleet.one("select id from allocations")))

    def release(self) -> None:
        """The tenant's release."""
        wanted = Operation(self.tenant.id, uuid.uuid4().hex, b"\0" * 32, 3600.0)

        async def main() -> None:
            async with working(self.stage.url) as (context, _):
                await release_allocation(context, wanted, TENANT, self.tenant.id, self.allocation)

        asyncio.run(main())

    def order(self, verb: Verb, console: Path) -> None:
        """The tenant orders a verb, and its run completes."""
        wanted = Operation(self.tenant.id, uuid.uuid4().hex, b"\0" * 32, 3600.0)

        async def main() -> None:
            async with working(self.stage.url) as (context, _):
                answer = await order_verb(context, wanted, TENANT, self.tenant.id, self.allocation, verb)
                assert answer.status == 202, answer

        asyncio.run(main())
        self.run(lambda context, _: begin_verb(context, self.allocation, "verb-1"))
        self.wait(verb.value, console)
        done = self.run(lambda context, _: finish_verb(context, self.allocation))
        assert (done.state, done.code) == ("active", None)

    def shown(self, column: str) -> Any:
        """A column of the allocation."""
        return self.stage.fleet.one(f"select {column} from allocations where id = %s", self.allocation)

    def wait(self, kind: str, console: Path) -> None:
        """Until the run of this kind has completed."""
        ended = "select count(*) from deploy_runs where allocation_id = %s and kind = %s and ended_at is not null"
        wait_for(lambda: self.stage.fleet.one(ended, self.allocation, kind), f"the {kind} ends", RUN_SECONDS_MAX)
        failure = self.stage.fleet.one(
            "select coalesce(max(failure), '') from deploy_runs where allocation_id = %s and kind = %s",
            self.allocation,
            kind,
        )
        assert failure == "", f"{failure}\n{console.read_text(errors='replace')[-4000:]}"

    def ssh(self, connection: dict[str, Any], command: str, directory: Path) -> str:
        """What the command prints on the machine, whose host key must be the allocation's."""
        line = self.ssh_command(connection, command, directory)
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout

    def ssh_command(self, connection: dict[str, Any], command: str, directory: Path) -> list[str]:
        """The line that runs the command on the machine."""
        known = directory / "known"
        known.write_text(f"{connection['host']} {connection['host_key']}\n")
        return [
            "ssh", "-F", "none", "-i", str(self.key), "-p", str(connection["port"]), "-o", "BatchMode=yes", "-o",
            "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={known}", "-o", "ConnectTimeout=20",
            f"{connection['user']}@{connection['host']}", command,
        ]  # fmt: skip


def put_into_service(
    stage: EmulatedStage, site: Site, access: BmcAccess, node: str, tmp_path: Path, console: Path, root: str = ""
) -> None:
    """The operator sets the BMC of the node, has the machine inspected, says what its `root` disk is, and uncordons it."""
    (tmp_path / "password").write_text(access.password)
    berth(stage, f"node cordon {node}")
    berth(
        stage,
        f"node bmc set {node} --site {site.name} --url {access.url} --username {access.username}"
        f" --certificate-sha256 {access.certificate_sha256} --password-file {tmp_path / 'password'}"
        " --no-rotate-at-release",  # the emulator has no accounts
    )
    berth(stage, f"node bmc look {node}")
    assert stage.ended(node)["task"]["outcome"] == "completed"
    berth(stage, f"node inspect {node} --mac {MAC} --address {ADDRESS}/24 --gateway {HOST} {root}")
    ended = "select count(*) from deploy_runs where node_id = %s and ended_at is not null"
    wait_for(lambda: stage.fleet.one(ended, node), "the inspection ends", RUN_SECONDS_MAX)
    assert berth(stage, f"node run {node}")["failure"] is None, console.read_text(errors="replace")[-4000:]
    berth(stage, f"node uncordon {node}")


def deployed(stage: EmulatedStage, machine: str, tmp_path: Path, console: Path) -> Tenancy:
    """A tenant whose allocation on the machine is active."""
    tenancy = Tenancy(stage, tmp_path)
    with image_served(stage.authority, GUEST_IMAGE, tmp_path) as image:
        stage.fleet.connection.execute(
            "update images set url = %s, sha256 = %s, format = 'raw', disk_bytes_min = %s where name = 'ubuntu'",
            (image.url, image.sha256, image.disk_bytes),
        )
        tenancy.create()
        tenancy.run(lambda context, _: begin_provisioning(context, tenancy.allocation, "provisioning-1"))
        tenancy.wait("deploy", console)
    assert tenancy.run(lambda context, _: finish_provisioning(context, tenancy.allocation)).state == "active"
    assert virsh("domstate", machine).strip() == "running"
    return tenancy
