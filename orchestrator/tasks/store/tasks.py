"""Signed tasks for nodes: issued, superseded, expired (DESIGN §9). Handing them out is elsewhere.

A task's row, with its id and envelope, is committed before the node can see it. At most one task of an allocation is
live; the database refuses a second (`one_live_task`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from node_agent.protocol import (
    ProvisionParameters,
    RebuildParameters,
    ReleaseParameters,
    TaskBody,
    TaskType,
    VerbParameters,
)
from node_agent.wire.guests import GUEST_SIZE_FEATURE, GuestSize, RestartPolicy
from node_agent.wire.images import IMAGE_CHECKS_FEATURE, BootFirmware, ImageFormat, ImageParameters, Readiness
from node_agent.wire.networks import NAMES_FEATURE, TENANT_NETWORK_FEATURE, VLAN_FEATURE, NetworkOrder, host_name
from orchestrator.allocations.rules import switches_of
from orchestrator.allocations.states import Verb
from orchestrator.allocations.subject import Subject
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.tasks.signing import TaskSigner

NOT_BEFORE_ALLOWANCE_SECONDS = 30.0
"""How far the clock of the process that answers nodes may be behind the database's."""

PROVISION_TYPES = {Shape.GPU_SLICE: TaskType.VM_PROVISION, Shape.BAREMETAL: TaskType.PROVISION_USER}
RELEASE_TYPES = {Shape.GPU_SLICE: TaskType.VM_RELEASE, Shape.BAREMETAL: TaskType.DEPROVISION_USER}


class EndedBeforeRestore(Exception):
    """The allocation was released in the lost interval of a restore, and its release is yet to be done again."""


class SizeUnsupported(Exception):
    """The SKU states the size of its guests, and the node's agent does not know sizes. The text is for operators."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a task for an allocation is made from."""

    node_epoch: int
    faults: dict[str, str]
    labels: dict[str, str]
    slots: list[int]
    name: str | None
    gpu_model: str
    user_data: str | None
    restart_policy: str
    ssh_public_keys: list[str]
    image: str
    image_url: str
    image_sha256: str
    checks_images: bool
    """Whether the node's agent checks format and smallest disk of an image."""
    networked: bool
    """Whether the node's agent makes tenant networks."""
    names_guests: bool
    """Whether it answers DHCP and DNS in them."""
    by_vlan: bool
    """Whether it connects them by VLANs with those of other nodes."""
    agent_version: str | None
    sizes_guests: bool
    """Whether the node's agent makes guests of a stated size."""
    vcpus_per_gpu: int | None
    memory_bytes_per_gpu: int | None
    format: str | None
    firmware: str
    login_user: str
    cloud_init: bool
    readiness: str
    readiness_port: int | None
    disk_bytes_min: int | None
    ended_before_restore: bool
    """Whether it was released in the lost interval of a restore, and its release is yet to be done again."""

    @property
    def guest_size(self) -> GuestSize | None:
        """What the SKU states of the guest; None: nothing."""
        if self.vcpus_per_gpu is None and self.memory_bytes_per_gpu is None:
            return None
        gpus = len(self.slots)
        return GuestSize(
            vcpus=None if self.vcpus_per_gpu is None else gpus * self.vcpus_per_gpu,
            memory_bytes=None if self.memory_bytes_per_gpu is None else gpus * self.memory_bytes_per_gpu,
        )

    def require_not_ended(self) -> None:
        """Raise `EndedBeforeRestore` if the release of the lost interval is yet to be done again."""
        if self.ended_before_restore:
            raise EndedBeforeRestore

    def require_size_supported(self) -> None:
        """Raise `SizeUnsupported` if the SKU states a size, and the node's agent does not know sizes."""
        if self.guest_size is not None and not self.sizes_guests:
            raise SizeUnsupported(
                f"the SKU states the size of its guests, and the node's agent (version {self.agent_version}) makes none of a"
                " stated size"
            )

    def understood(self, network: NetworkOrder) -> NetworkOrder:
        """The order as the node's agent reads it, without names or VLAN if it is of the version before, or does not use them."""
        left_out: dict[str, list[str] | None] = {} if self.names_guests else {"names": []}
        if not self.by_vlan:
            left_out["vlan"] = None
        return network.model_copy(update=left_out)

    def for_site(self) -> Instructions:
        """The same for a machine that a site deploys: its deploy system checks images, and no agent makes guests or networks."""
        return replace(self, checks_images=True, sizes_guests=True, networked=False)

    def faults_for(self, labels_allowed: bool) -> dict[str, str]:
        """The fault switches of the node and, where labels may throw them, of the allocation, which win."""
        return {**self.faults, **switches_of(self.labels)} if labels_allowed else self.faults


@dataclass(frozen=True, slots=True)
class Issued:
    """A task that is now queued for its node."""

    id: UUID
    expires_at: datetime


_READ_INSTRUCTIONS = """
select n.epoch as node_epoch, n.faults, a.labels,
       array(select unit - n.unit_base from unnest(c.units) part, generate_series(lower(part), upper(part) - 1) unit
             order by unit) as slots,
       a.name, a.gpu_model, a.user_data, a.restart_policy, a.ssh_public_keys,
       i.name as image, i.url as image_url, i.sha256 as image_sha256,
       :image_checks = any (n.agent_features) as checks_images, :networks = any (n.agent_features) as networked,
       :names = any (n.agent_features) as names_guests, :vlan = any (n.agent_features) as by_vlan,
       :sizes = any (n.agent_features) as sizes_guests, n.agent_version, s.vcpus_per_gpu, s.memory_bytes_per_gpu,
       i.format, i.firmware, i.login_user, i.cloud_init, i.readiness, i.readiness_port, i.disk_bytes_min,
       exists (select from restore_replays w where w.kind = 'release' and w.subject_id = a.id and w.done_at is null)
           as ended_before_restore
from allocations a join nodes n on n.id = a.node_id join claims c on c.id = a.claim_id join images i on i.name = a.image
left join skus s on s.name = a.sku
where a.id = :id
"""
_INSERT = """
insert into node_tasks
    (id, node_id, node_epoch, type, allocation_id, fence, attempt, envelope, notify, not_before, expires_at, deploy_epoch)
values (:id, :node_id, :node_epoch, :type, :allocation_id, :fence, :attempt, cast(:envelope as jsonb), :notify,
        :not_before, :expires_at, case when :by_site then 0 end)
"""
_SUPERSEDE = """
update node_tasks set state = 'superseded', finished_at = clock_timestamp()
where allocation_id = :allocation_id and state in ('queued', 'dispatched')
"""
_EXPIRE = """
update node_tasks set state = 'expired', finished_at = clock_timestamp()
where id = :id and state in ('queued', 'dispatched')
"""


async def read_instructions(reading: Reading, allocation_id: UUID) -> Instructions:
    """Node, slots, image and keys of an allocation."""
    features = {
        "image_checks": IMAGE_CHECKS_FEATURE, "networks": TENANT_NETWORK_FEATURE, "sizes": GUEST_SIZE_FEATURE,
        "names": NAMES_FEATURE, "vlan": VLAN_FEATURE,
    }  # fmt: skip
    row = (await reading.execute(_READ_INSTRUCTIONS, {"id": allocation_id, **features})).one()
    return Instructions(**row._mapping)


def provision_parameters(
    subject: Subject, instructions: Instructions, faults: dict[str, str], network: NetworkOrder | None
) -> ProvisionParameters:
    """What the node needs to make the allocation usable."""
    return ProvisionParameters(
        slots=instructions.slots,
        gpu_model=instructions.gpu_model,
        image=_image_parameters(instructions),
        ssh_public_keys=instructions.ssh_public_keys,
        user_data=instructions.user_data,
        restart_policy=RestartPolicy(instructions.restart_policy),
        hostname=host_name(subject.id),
        faults=faults,
        network=network,
        guest_size=instructions.guest_size,
    )


def _image_parameters(instructions: Instructions) -> ImageParameters:
    """The image as its node is to boot it. An agent that checks no image is not asked to: it boots the same guest."""
    checked = instructions.checks_images
    return ImageParameters(
        name=instructions.image,
        url=instructions.image_url,
        sha256=instructions.image_sha256,
        format=ImageFormat(instructions.format) if checked and instructions.format is not None else None,
        firmware=BootFirmware(instructions.firmware),
        login_user=instructions.login_user,
        cloud_init=instructions.cloud_init,
        readiness=Readiness(instructions.readiness),
        readiness_port=instructions.readiness_port,
        disk_bytes_min=instructions.disk_bytes_min if checked else None,
    )


def release_parameters(
    instructions: Instructions, faults: dict[str, str], graceful_seconds: float
) -> ReleaseParameters:
    """What the node needs to take the allocation down."""
    return ReleaseParameters(slots=instructions.slots, graceful_seconds=graceful_seconds, faults=faults)


def verb_parameters(
    subject: Subject, verb: Verb, instructions: Instructions, faults: dict[str, str], graceful_seconds: float,
    network: NetworkOrder | None,
) -> VerbParameters | RebuildParameters:  # fmt: skip
    """What the node needs to perform the verb; a rebuild makes the guest anew from what it was provisioned with."""
    if verb is not Verb.REBUILD:
        return VerbParameters(slots=instructions.slots, graceful_seconds=graceful_seconds, faults=faults)
    anew = provision_parameters(subject, instructions, faults, network)
    return RebuildParameters(**dict(anew), graceful_seconds=graceful_seconds)


async def issue_task(
    tx: Transaction,
    signer: TaskSigner,
    subject: Subject,
    task_type: TaskType,
    parameters: ProvisionParameters | ReleaseParameters | VerbParameters,
    *,
    node_epoch: int,
    fence: int,
    attempt: int,
    notify: str,
    valid_seconds: float,
    by_site: bool = False,
) -> Issued:
    """Sign and queue a task, superseding any live one. `notify` names the workflow to wake when it ends.

    `by_site`: the site of the node performs it by a run of a deploy system, and no agent of the node leases it.
    """
    if subject.task is not None and subject.task.live:
        await supersede_live_tasks(tx, subject.id)
    body = TaskBody(
        task_id=uuid4(),
        type=task_type,
        node_id=subject.node_id,
        node_epoch=node_epoch,
        allocation_id=subject.id,
        fence=fence,
        parameters=parameters.model_dump(mode="json"),
        not_before=subject.clock - timedelta(seconds=NOT_BEFORE_ALLOWANCE_SECONDS),
        expires_at=subject.clock + timedelta(seconds=valid_seconds),
        key_id=signer.key_id,
    )
    await tx.execute(
        _INSERT,
        {
            "id": body.task_id,
            "node_id": body.node_id,
            "node_epoch": body.node_epoch,
            "type": body.type.value,
            "allocation_id": subject.id,
            "fence": fence,
            "attempt": attempt,
            "envelope": signer.sign(body).model_dump_json(),
            "notify": notify,
            "not_before": body.not_before,
            "expires_at": body.expires_at,
            "by_site": by_site,
        },
    )
    return Issued(body.task_id, body.expires_at)


async def supersede_live_tasks(tx: Transaction, allocation_id: UUID) -> None:
    """Make the allocation's running task worthless; its late result will change nothing (P8)."""
    await tx.execute(_SUPERSEDE, {"allocation_id": allocation_id})


async def mark_task_expired(tx: Transaction, task_id: UUID) -> None:
    """Mark a task whose time is up as expired. It writes no event: the caller continues with the task's allocation."""
    await tx.execute(_EXPIRE, {"id": task_id})


_HAND_OVER = "update node_tasks set notify = :notify where id = :id"


async def hand_over(tx: Transaction, task_id: UUID, notify: str) -> None:
    """Make `notify` the workflow to wake at the task's end."""
    await tx.execute(_HAND_OVER, {"id": task_id, "notify": notify})
