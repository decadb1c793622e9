"""Sites, their agents and BMCs, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, remove, write, written
from berth.client.hardware.adoptions import Adoption
from berth.client.hardware.deploy_systems import DeployRun
from berth.client.hardware.sites import Bmc, SealedBmcPassword, Site, SiteAgent, SiteAgentToken
from berth.client.hardware.switches import NodePorts, SiteSegments, SwitchPort
from berth.client.models import Page
from berth.process.json_objects import JsonMapping, JsonObject

SITES = "/api/v1/admin/sites"
NODES = "/api/v1/admin/nodes"


def create_site(*, name: str, recovery_key: str, idempotency_key: str | None = None) -> Call[Site]:
    """Create a site; `recovery_key`: X25519 public key, hex. Raises `AlreadyExists`."""
    return write("POST", SITES, Site, {"name": name, "recovery_key": recovery_key}, idempotency_key)


def list_sites(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Site]]:
    """The sites, with their agents."""
    return read_page(SITES, Site, limit=limit, cursor=cursor)


def get_site(site: UUID | str) -> Call[Site]:
    """One site by id or name. Raises `NotFound`."""
    return read(f"{SITES}/{site}", Site)


def delete_site(site_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Remove a site. Raises `NotFound`, `SiteInUse`."""
    return remove(f"{SITES}/{site_id}", idempotency_key)


def invite_site_agent(
    site_id: UUID, *, name: str, hardware_id: str | None = None, valid_seconds: int | None = None,
    idempotency_key: str | None = None,
) -> Call[SiteAgentToken]:  # fmt: skip
    """A one-time token for an agent of the site, which is made if it is new. Raises `NotFound`, `InvalidState`."""
    body = {"name": name, "hardware_id": hardware_id, "valid_seconds": valid_seconds}
    return write("POST", f"{SITES}/{site_id}/agents", SiteAgentToken, body, idempotency_key)


def revoke_site_agent(
    site_id: UUID, agent_id: UUID, *, reason: str, idempotency_key: str | None = None
) -> Call[SiteAgent]:
    """Revoke an agent; rotate the passwords that it knows after this. Raises `NotFound`."""
    path = f"{SITES}/{site_id}/agents/{agent_id}/revoke"
    return write("POST", path, SiteAgent, {"reason": reason}, idempotency_key)


def list_bmcs(*, site_id: UUID | None = None, limit: int | None = None, cursor: str | None = None) -> Call[Page[Bmc]]:
    """BMCs, by node; of this site if it is given."""
    wanted = None if site_id is None else str(site_id)
    return read_page("/api/v1/admin/bmcs", Bmc, site_id=wanted, limit=limit, cursor=cursor)


def get_bmc(node_id: UUID) -> Call[Bmc]:
    """The BMC of a node. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/bmc", Bmc)


def put_bmc(
    node_id: UUID, *, site_id: UUID, url: str, certificate_sha256: str, username: str, system_id: str | None = None,
    password: SealedBmcPassword | None = None, rotates_at_release: bool | None = None, console_host_key: str | None = None,
    console_shared: bool | None = None, idempotency_key: str | None = None,
) -> Call[Bmc]:  # fmt: skip
    """Register or change the BMC of a node; without a password the present one stays.

    `rotates_at_release` None: as it is, and true for a new one. `console_host_key`, `console_shared` None: as they are; an
    empty key removes it.

    Raises `NotFound`, `Invalid`, `SealingOutdated`, and `InvalidState` for a retired node or while a task of the BMC is open.
    """
    body: JsonObject = {
        "site_id": str(site_id), "url": url, "certificate_sha256": certificate_sha256, "username": username,
        "system_id": system_id, "password": None if password is None else password.document(),
    }  # fmt: skip
    if rotates_at_release is not None:  # an API of the version before refuses the member
        body["rotates_at_release"] = rotates_at_release
    if console_host_key is not None:
        body["console_host_key"] = console_host_key
    if console_shared is not None:
        body["console_shared"] = console_shared
    return write("PUT", f"{NODES}/{node_id}/bmc", Bmc, body, idempotency_key)


def delete_bmc(node_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Forget the BMC of a node. Raises `NotFound`, `InvalidState` while a task of it is open."""
    return remove(f"{NODES}/{node_id}/bmc", idempotency_key)


def describe_bmc(node_id: UUID, *, idempotency_key: str | None = None) -> Call[Bmc]:
    """Have the site's agent describe the machine. Raises `NotFound`, `InvalidState` while another task is open."""
    return write("POST", f"{NODES}/{node_id}/bmc/look", Bmc, {}, idempotency_key)


def rotate_bmc_password(node_id: UUID, *, idempotency_key: str | None = None) -> Call[Bmc]:
    """Have the site's agent give the BMC a new password. Raises `NotFound`, `InvalidState` while another task is open."""
    return write("POST", f"{NODES}/{node_id}/bmc/rotate", Bmc, {}, idempotency_key)


def reseal_bmc_password(node_id: UUID, *, idempotency_key: str | None = None) -> Call[Bmc]:
    """Have the site's agent seal the password to agents that enrolled later. Raises `NotFound`, `InvalidState`."""
    return write("POST", f"{NODES}/{node_id}/bmc/reseal", Bmc, {}, idempotency_key)


def reset_bmc(node_id: UUID, *, idempotency_key: str | None = None) -> Call[Bmc]:
    """Have the site's agent restart the BMC itself. Raises `NotFound`, `InvalidState`: something works on the machine."""
    return write("POST", f"{NODES}/{node_id}/bmc/reset", Bmc, {}, idempotency_key)


def switch_machine(
    node_id: UUID, *, verb: Literal["on", "off", "reset"], idempotency_key: str | None = None
) -> Call[Bmc]:
    """Have the site's agent switch the machine. Raises `NotFound`, `InvalidState`, `NodeInUse`: something works on it."""
    return write("POST", f"{NODES}/{node_id}/bmc/power", Bmc, {"verb": verb}, idempotency_key)


def run_deploy_system(
    node_id: UUID, *, kind: Literal["inspect", "wipe"] = "inspect", network: JsonMapping | None = None,
    smbios_uuid: UUID | None = None, macs: Sequence[str] | None = None, require_tpm: bool | None = None,
    root_disk: JsonMapping | None = None, idempotency_key: str | None = None,
) -> Call[DeployRun]:  # fmt: skip
    """Have the site start a deploy system on the node's machine, which does this, and end it. An open run is the answer.

    `network` as of `permit_deploy_system`; None: that of the newest run. `root_disk`: what the root disk of deployments must be
    (`serial`, `kind`, `size_bytes_min`); None: as in the newest run, empty: any. Raises `NotFound`, `Invalid`, `InvalidState`,
    `NodeInUse`, `MachineUnknown`, `NotWipeable`, `DeployNotConfigured`.
    """
    body = {
        "kind": kind, "network": None if network is None else dict(network),
        "smbios_uuid": None if smbios_uuid is None else str(smbios_uuid), "macs": None if macs is None else list(macs),
        "require_tpm": require_tpm, "root_disk": None if root_disk is None else dict(root_disk),
    }  # fmt: skip
    return write("POST", f"{NODES}/{node_id}/deploy-system/run", DeployRun, body, idempotency_key)


def get_deploy_run(node_id: UUID) -> Call[DeployRun]:
    """The newest run of a deploy system of a node. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/deploy-system/run", DeployRun)


def stop_deploy_run(node_id: UUID, *, idempotency_key: str | None = None) -> Call[DeployRun]:
    """Stop the open run of a node: the machine is switched off and the medium taken away. Raises `NotFound`, `InvalidState`."""
    return write("POST", f"{NODES}/{node_id}/deploy-system/run/stop", DeployRun, {}, idempotency_key)


def get_site_segments(site_id: UUID) -> Call[SiteSegments]:
    """The VLANs of a site, and which of them tenants have. Raises `NotFound`."""
    return read(f"{SITES}/{site_id}/segments", SiteSegments)


def put_site_segments(
    site_id: UUID, *, provisioning_vlan: int, first_tenant_vlan: int, last_tenant_vlan: int,
    quarantine_seconds: int | None = None, idempotency_key: str | None = None,
) -> Call[SiteSegments]:  # fmt: skip
    """Set the VLANs of a site. Raises `NotFound`, `Invalid`, `InvalidState` while machines or tenants have one that would go."""
    body: JsonObject = {
        "provisioning_vlan": provisioning_vlan, "first_tenant_vlan": first_tenant_vlan, "last_tenant_vlan": last_tenant_vlan,
    }  # fmt: skip
    if quarantine_seconds is not None:
        body["quarantine_seconds"] = quarantine_seconds
    return write("PUT", f"{SITES}/{site_id}/segments", SiteSegments, body, idempotency_key)


def get_node_ports(node_id: UUID) -> Call[NodePorts]:
    """The switch ports of a machine, and where they are. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/ports", NodePorts)


def put_node_ports(
    node_id: UUID, *, ports: Sequence[SwitchPort], idempotency_key: str | None = None
) -> Call[NodePorts]:
    """Set the switch ports of a machine, all of them; none forgets them.

    Raises `NotFound`, `Invalid`, `AlreadyExists` for a port of another machine, `NodeInUse`, `InvalidState`.
    """
    body = {"ports": [one.document() for one in ports]}
    return write("PUT", f"{NODES}/{node_id}/ports", NodePorts, body, idempotency_key)


def move_node_ports(
    node_id: UUID, *, to: Literal["provisioning", "tenant", "shut", "check"], idempotency_key: str | None = None
) -> Call[NodePorts]:
    """Have the site's agent move the ports of a machine, or compare them. Raises `NotFound`, `InvalidState`, `NodeInUse`."""
    return write("POST", f"{NODES}/{node_id}/ports/move", NodePorts, {"to": to}, idempotency_key)


def adopt_machine(
    node_id: UUID, *, tenant_id: UUID, sku: str, ssh_key_ids: Sequence[UUID], connection: JsonMapping,
    network: JsonMapping, image: str | None = None, name: str | None = None, labels: Mapping[str, str] | None = None,
    ends_at: datetime | None = None, macs: Sequence[str] | None = None, require_tpm: bool | None = None,
    smbios_uuid: UUID | None = None, serial: str | None = None, idempotency_key: str | None = None,
) -> Call[Adoption]:  # fmt: skip
    """Record a machine that runs already as an active allocation of its tenant; nothing is commanded or written on it.

    `connection`: `host`, `user`, `host_key`, and `port` if it is not 22. `network`: of the deploy system of its release, as of
    `run_deploy_system`. Its BMC must have described it within 15 minutes (`describe_bmc`).

    Raises `NotFound`, `InvalidState`, `NodeInUse`, `NotAdoptable`, `SkuUnavailable`, `ImageUnavailable`, `SshKeyNotFound`,
    `QuotaExceeded`, `BalanceDepleted`, `DeployNotConfigured`.
    """
    body = {
        "tenant_id": str(tenant_id), "sku": sku, "ssh_key_ids": [str(key) for key in ssh_key_ids],
        "connection": dict(connection), "network": dict(network), "image": image, "name": name,
        "labels": None if labels is None else dict(labels), "ends_at": written(ends_at),
        "macs": None if macs is None else list(macs), "require_tpm": require_tpm,
        "smbios_uuid": None if smbios_uuid is None else str(smbios_uuid), "serial": serial,
    }  # fmt: skip
    return write("POST", f"{NODES}/{node_id}/adoption", Adoption, body, idempotency_key)


def get_adoption(node_id: UUID) -> Call[Adoption]:
    """The adoption of the allocation that is on the node. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/adoption", Adoption)
