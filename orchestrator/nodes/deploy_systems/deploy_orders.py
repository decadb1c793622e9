"""What a deployment writes on an inspected machine: image, root disk, and the config drive of the tenant; and the keys of a
rescue system. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from pydantic import ValidationError

from berth.process.json_objects import JsonObject
from node_agent.protocol import ProvisionParameters
from node_agent.wire.deploy_medium import MediumNetwork
from node_agent.wire.deploy_tasks import (
    PARAMETERS_BYTES_MAX,
    ConfigDrive,
    MetalDeployParameters,
    MetalInspectReport,
    MetalParameters,
    MetalRescueParameters,
)
from node_agent.wire.fields import first_error
from node_agent.wire.images import ImageFormat
from orchestrator.nodes.deploy_systems.root_disks import NoRootDisk, RootDiskHint, root_disk_of
from orchestrator.nodes.deploy_systems.run_rules import RUN_SECONDS_MAX, RunKind, deploy_seconds
from orchestrator.nodes.deploy_systems.run_store import RunWork

_ANY_EPOCH: Final = 1
"""The deploy epoch is known when the deploy system is permitted."""
_LATER_BYTES: Final = 256
"""Room for what is added to the parameters then."""


class NotDeployable(Exception):
    """Nothing is begun on the machine; `code` is one of the failures of allocations."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def deploy_of(
    report: MetalInspectReport, wanted: ProvisionParameters, allocation_id: UUID, network: MediumNetwork,
    hint: RootDiskHint,
) -> RunWork:  # fmt: skip
    """The work of a run that deploys an allocation on the machine of this inspection. Raises `NotDeployable`.

    The root disk is the smallest one that the hint allows and the image fits; the others are not opened.
    """
    image = wanted.image
    if image.format is not ImageFormat.RAW or image.disk_bytes_min is None:
        raise NotDeployable(
            "image_does_not_fit",
            f"the image {image.name} is not published as raw with its size: machines are deployed from raw images alone,"
            " also compressed by zstd; their smallest disk is what they unpack to",
        )
    try:
        root_disk = root_disk_of(report, image.disk_bytes_min, hint)
    except NoRootDisk as error:
        raise NotDeployable("image_does_not_fit", str(error)) from error
    try:
        parameters = MetalDeployParameters(
            deploy_epoch=_ANY_EPOCH, root_disk=root_disk, image=image,
            image_bytes=image.disk_bytes_min,
            config_drive=ConfigDrive(
                hostname=wanted.hostname, instance_id=str(allocation_id), ssh_public_keys=wanted.ssh_public_keys,
                user_data=wanted.user_data, network=netplan_of(network),
            ),
        )  # fmt: skip
    except ValidationError as error:
        raise NotDeployable(
            "task_refused", f"the deployment cannot be described: {first_error(error)[:300]}"
        ) from error
    content = _bounded(parameters)
    return RunWork(RunKind.DEPLOY, content, deploy_seconds(image.disk_bytes_min))


def rescue_of(ssh_public_keys: Sequence[str]) -> RunWork:
    """The work of a run that rescues a machine for a tenant with these keys. Raises `NotDeployable`."""
    if not ssh_public_keys:
        raise NotDeployable(
            "task_refused",
            "no_keys: none of the keys that the allocation was created with is a key of the tenant any more",
        )
    try:
        parameters = MetalRescueParameters(deploy_epoch=_ANY_EPOCH, ssh_public_keys=list(ssh_public_keys))
    except ValidationError as error:
        raise NotDeployable("task_refused", f"the rescue cannot be described: {first_error(error)[:300]}") from error
    content = _bounded(parameters)
    return RunWork(RunKind.RESCUE, content, RUN_SECONDS_MAX)


def _bounded(parameters: MetalParameters) -> JsonObject:
    """The parameters without what is known later. Raises `NotDeployable` if they make too large a task."""
    content = parameters.model_dump(mode="json", exclude_none=True, exclude={"deploy_epoch", "then"})
    size = size_of(content) + _LATER_BYTES
    if size > PARAMETERS_BYTES_MAX:
        raise NotDeployable(
            "task_refused",
            f"login_too_large: keys and user data make a task of {size} bytes, at most {PARAMETERS_BYTES_MAX}: shorten them, or"
            " have the user data fetch the rest",
        )
    return content


def size_of(parameters: JsonObject) -> int:
    """The bytes that PostgreSQL's jsonb needs as text: UTF-8, with escapes of up to six bytes for a control character."""
    return len(json.dumps(parameters, ensure_ascii=False).encode())


def netplan_of(network: MediumNetwork) -> JsonObject:
    """The network configuration (version 2) of the tenant's system: the address of the machine's deploy systems."""
    family = network.address.version
    addressed: JsonObject = {"addresses": [str(network.address)]}
    if network.gateway is not None:
        addressed["routes"] = [{"to": "0.0.0.0/0" if family == 4 else "::/0", "via": network.gateway}]
    port: JsonObject = {"match": {"macaddress": network.mac}}
    if network.mtu is not None:
        port["mtu"] = network.mtu
    if network.vlan is None:
        return {"version": 2, "ethernets": {"port0": {**port, **addressed}}}
    return {
        "version": 2, "ethernets": {"port0": port},
        "vlans": {"vlan0": {"id": network.vlan, "link": "port0", **addressed}},
    }  # fmt: skip
