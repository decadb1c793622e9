"""Decisions about the task of a window: its time, and which nodes can run it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonMapping
from node_agent.wire.burn_in import BURN_IN_FEATURE
from node_agent.wire.firmware import FirmwareOrder
from node_agent.wire.gpu_reset import GPU_RESET_FEATURE
from node_agent.wire.layout import layout_of
from node_agent.wire.maintenance import MAINTENANCE_PLUGIN_FEATURE
from node_agent.wire.topology import Topology
from orchestrator.maintenance.refusals import MaintenanceTaskInvalid, MaintenanceTaskUnsupported
from orchestrator.maintenance.states import TaskKind

SECONDS_MAX: Final = 14_400
"""The longest time that a node may have for a task."""
MARGIN_SECONDS: Final = 60
"""By which a window is longer than its task: the worker starts the one and then the other."""
SECONDS: Final[Mapping[TaskKind, int]] = {
    TaskKind.HEALTH_PROBE: 600, TaskKind.BURN_IN: 3_600, TaskKind.GPU_RESET: 300, TaskKind.PLUGIN: 1_800,
    TaskKind.FIRMWARE: 3_600,
}  # fmt: skip
"""How long a node has for a task unless the window says otherwise."""
FEATURES: Final[Mapping[TaskKind, str]] = {
    TaskKind.BURN_IN: BURN_IN_FEATURE,
    TaskKind.GPU_RESET: GPU_RESET_FEATURE,
    TaskKind.PLUGIN: MAINTENANCE_PLUGIN_FEATURE,
}
"""What an agent names that can run the task; every agent runs the others."""
FIRMWARE_SECONDS_MIN = 900
"""Ten minutes of them are for the versions after the update: a BMC that restarts does not answer for minutes."""
WHOLE_NODES: Final = frozenset({TaskKind.PLUGIN, TaskKind.FIRMWARE})
"""Tasks that may end whatever runs on the node."""
PLUGIN_SECONDS_MIN = 30
"""A node keeps some seconds of them for the report; without any left it would be quarantined for a plugin that never ran."""


@dataclass(frozen=True, slots=True)
class WantedTask:
    """What a window runs on each of its nodes. `plugin`: the file name of a plugin, of the kind `plugin` alone.

    `firmware`: of the kind `firmware` alone.
    """

    kind: TaskKind
    plugin: str | None
    seconds_max: int
    firmware: FirmwareOrder | None = None


@dataclass(frozen=True, slots=True)
class NodeBmc:
    """The BMC of a node. `names`: the entries of its firmware inventory by id as of the last look; None: not looked, or cut.

    `accepted`: what the list of the node's model accepts of such entries: perhaps of one name, and the versions.
    """

    names: Mapping[str, str] | None
    accepted: Sequence[tuple[str | None, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class NodeOfWindow:
    """A locked node of the window, as far as its task is concerned. `whole`: the window has all of its slots."""

    node_id: UUID
    whole: bool
    features: Sequence[str]
    agent_version: str | None
    slot_count: int
    topology: JsonMapping | None
    bmc: NodeBmc | None = None


def require_task(wanted: WantedTask, starts_at: datetime, ends_at: datetime, now: datetime) -> None:
    """Raise `MaintenanceTaskInvalid` if the plugin is missing or too much or has too little time, or the window has."""
    if (wanted.kind is TaskKind.PLUGIN) is not (wanted.plugin is not None):
        raise MaintenanceTaskInvalid("`plugin` names the plugin of the task `plugin`, and of no other")
    if (wanted.kind is TaskKind.FIRMWARE) is not (wanted.firmware is not None):
        raise MaintenanceTaskInvalid("`firmware` is the order of the task `firmware`, and of no other")
    if wanted.kind is TaskKind.FIRMWARE and wanted.seconds_max < FIRMWARE_SECONDS_MIN:
        raise MaintenanceTaskInvalid(
            f"an update has at least {FIRMWARE_SECONDS_MIN} s; choose a larger timeout_seconds"
        )
    if wanted.kind is TaskKind.PLUGIN and wanted.seconds_max < PLUGIN_SECONDS_MIN:
        raise MaintenanceTaskInvalid(f"a plugin has at least {PLUGIN_SECONDS_MIN} s; choose a larger timeout_seconds")
    if max(starts_at, now) + timedelta(seconds=wanted.seconds_max + MARGIN_SECONDS) > ends_at:
        raise MaintenanceTaskInvalid(
            f"the task may take {wanted.seconds_max} s, and the window must be {MARGIN_SECONDS} s longer; choose a later ends_at"
            " or a smaller timeout_seconds"
        )


def require_runnable(wanted: WantedTask, nodes: Sequence[NodeOfWindow]) -> None:
    """Raise `MaintenanceTaskUnsupported` if an agent does not know the task, or a node has no GPU for each slot.

    Raise `MaintenanceTaskInvalid` for a plugin or an update on parts of a node: it may end what runs on the others.
    """
    parts = [one.node_id for one in nodes if not one.whole]
    if wanted.kind in WHOLE_NODES and parts:
        raise MaintenanceTaskInvalid(
            f"the task {wanted.kind} runs on whole nodes, and the window has only slots of node {parts[0]}; name the node instead"
        )
    found = ((one.node_id, _why_not_updatable(wanted, one) or why_not_runnable(wanted.kind, one)) for one in nodes)
    reasons = {str(node_id): why for node_id, why in found if why is not None}
    if reasons:
        raise MaintenanceTaskUnsupported.of(wanted.kind, reasons)


def _why_not_updatable(wanted: WantedTask, node: NodeOfWindow) -> str | None:
    """Why the firmware of the node cannot be updated so, or None."""
    order = wanted.firmware
    if order is None:
        return None
    if node.bmc is None:
        return "it has no BMC of a site"
    names = node.bmc.names
    if names is None:
        return None
    missing = [target for target in order.targets if target not in names]
    if missing:
        return f"its BMC names no firmware {missing[0]}, but {', '.join(sorted(names)[:20]) or 'none'}"
    for name in (names[target] or target for target in order.targets):
        naming = [versions for model, versions in node.bmc.accepted if model in (None, name)]
        if naming and not any(order.version in versions for versions in naming):
            return f"the firmware list of its model does not accept {order.version} of {name}; put it on the list first"
    return None


def why_not_runnable(kind: TaskKind, node: NodeOfWindow) -> str | None:
    """Why the node cannot run the task, or None."""
    feature = FEATURES.get(kind)
    if feature is not None and feature not in node.features:
        if kind is TaskKind.PLUGIN:
            return f"its agent (version {node.agent_version}) has no folder of maintenance plugins"
        return f"its agent (version {node.agent_version}) does not know the task"
    if kind is not TaskKind.GPU_RESET:
        return None
    layout = None if node.topology is None else layout_of(Topology.model_validate(node.topology))
    if layout is None or len(layout.addresses) != node.slot_count:
        return "its topology does not name a GPU for each slot"
    return None
