"""The `berth` program: all commands and groups."""

from __future__ import annotations

import typer

from berth.cli.access import approvals, members
from berth.cli.access.login import login, logout
from berth.cli.commands import (
    allocations,
    audit,
    balance,
    catalogue,
    demo,
    events,
    keys,
    kv,
    nodes,
    operations,
    orphans,
    reservations,
    resources,
    retention,
    tenants,
    webhooks,
)
from berth.cli.commands.availability import availability
from berth.cli.commands.up import up
from berth.cli.commands.usage import usage
from berth.cli.console import console
from berth.cli.deployment import audit_streams, doctor, migrate
from berth.cli.deployment.archive import commands as archive
from berth.cli.deployment.backup import commands as backup
from berth.cli.deployment.restore import commands as restore
from berth.cli.deployment.verify import verify
from berth.cli.fleet import (
    adoptions,
    attestations,
    burn_ins,
    deploy_systems,
    devices,
    faults,
    firmware,
    gpu_resets,
    hardware,
    health,
    maintenance,
    pools,
    quarantines,
    topologies,
)
from berth.cli.guests import verbs
from berth.cli.images import commands as images
from berth.cli.images.importing import import_image
from berth.cli.proof import certificates
from berth.cli.rollout import commands as rollout
from berth.cli.session import command
from berth.cli.sites import bmcs, ports, sites

EPILOG = (
    "The API is found through BERTH_API_URL and BERTH_API_KEY or `berth login`, or through the local stack's state directory "
    "(--state-dir, default var). Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 a server cannot be "
    "reached, 4 outcome unknown, 5 timed out, 130 interrupted."
)

app = typer.Typer(
    name="berth", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=True, epilog=EPILOG,
    help="Berth: the control plane of a GPU cloud.",
)  # fmt: skip
command(app, "login")(login)
command(app, "logout")(logout)
command(app, "up")(up)
command(app, "demo")(demo.demo)
command(app, "migrate")(migrate.migrate)
command(app, "doctor")(doctor.doctor)
command(app, "verify")(verify)
command(app, "force-release")(allocations.force_release)
command(app, "force-cleanup")(allocations.force_cleanup)
app.add_typer(allocations.app, name="alloc")
command(allocations.app, "reboot")(verbs.reboot)
command(allocations.app, "stop")(verbs.stop)
command(allocations.app, "start")(verbs.start)
command(allocations.app, "rebuild")(verbs.rebuild)
command(allocations.app, "rescue")(verbs.rescue)
command(allocations.app, "report-fault")(faults.report_fault)
command(allocations.app, "faults")(faults.list_own)
command(allocations.app, "fault")(faults.show_own)
command(allocations.app, "console")(console.console)
command(allocations.app, "devices")(devices.show_devices)
app.add_typer(reservations.app, name="reserve")
command(app, "availability")(availability)
command(app, "usage")(usage)
app.add_typer(balance.app, name="balance")
app.add_typer(operations.app, name="operations")
app.add_typer(resources.app, name="resources")
app.add_typer(nodes.app, name="node")
command(nodes.app, "quarantine")(quarantines.quarantine)
command(nodes.app, "return")(quarantines.return_slot)
command(nodes.app, "quarantines")(quarantines.list_quarantines)
command(nodes.app, "orphans")(orphans.list_orphans)
command(nodes.app, "adopt")(orphans.adopt)
command(nodes.app, "destroy-orphan")(orphans.destroy)
command(nodes.app, "topology")(topologies.show_topology)
command(nodes.app, "approve")(topologies.approve)
command(nodes.app, "health")(health.show_health)
command(nodes.app, "burn-in")(burn_ins.burn_in)
command(nodes.app, "burn-ins")(burn_ins.list_burn_ins)
command(nodes.app, "upgrade")(rollout.upgrade)
command(nodes.app, "deploy-system")(deploy_systems.deploy_system)
command(nodes.app, "power")(bmcs.power)
command(nodes.app, "inspect")(deploy_systems.inspect_machine)
command(nodes.app, "wipe")(deploy_systems.wipe_machine)
command(nodes.app, "run")(deploy_systems.show_run)
command(nodes.app, "adopt-machine")(adoptions.adopt_machine)
command(nodes.app, "adoption")(adoptions.adoption)
command(nodes.app, "deploy-tasks")(deploy_systems.list_deploy_tasks)
command(nodes.app, "attest")(attestations.attest)
command(nodes.app, "attestation")(attestations.attestation)
command(nodes.app, "gpu-reset")(gpu_resets.gpu_reset)
command(nodes.app, "gpu-resets")(gpu_resets.list_gpu_resets)
nodes.app.add_typer(bmcs.app, name="bmc")
nodes.app.add_typer(ports.app, name="port")
sites.app.add_typer(ports.segments_app, name="segments")
app.add_typer(sites.app, name="site")
app.add_typer(firmware.app, name="firmware")
app.add_typer(tenants.tenants, name="tenant")
app.add_typer(keys.app, name="key")
app.add_typer(approvals.app, name="approvals")
app.add_typer(maintenance.app, name="maintenance")
app.add_typer(faults.app, name="fault")
app.add_typer(hardware.app, name="hardware")
app.add_typer(pools.app, name="pool")
app.add_typer(certificates.app, name="certificate")
app.add_typer(audit.app, name="audit")
app.add_typer(audit_streams.app, name="audit-stream")
app.add_typer(tenants.ssh_keys, name="ssh-key")
app.add_typer(members.members, name="member")
app.add_typer(members.invitations, name="invitation")
app.add_typer(catalogue.skus, name="sku")
app.add_typer(images.app, name="image")
command(images.app, "import")(import_image)
app.add_typer(catalogue.regions, name="region")
app.add_typer(events.app, name="events")
app.add_typer(kv.app, name="kv")
app.add_typer(retention.app, name="retention")
app.add_typer(webhooks.app, name="webhook")
app.add_typer(migrate.admin_keys, name="admin-key")
app.add_typer(archive.app, name="archive")
app.add_typer(backup.app, name="backup")
app.add_typer(restore.app, name="restore")


def run() -> None:
    """Entry point of the `berth` program."""
    app()
