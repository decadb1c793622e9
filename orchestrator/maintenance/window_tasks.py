"""Decisions about the task of a window: its time, and which nodes can run it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonMapping
from node_agent.wire.burn_in import BURN_IN_FEATURE
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
}  # fmt: skip
"""How long a node has for a task unless the window says otherwise."""
FEATURES: Final[Mapping[TaskKind, str]] = {
    TaskKind.BURN_IN: BURN_IN_FEATURE,
    TaskKind.GPU_RESET: GPU_RESET_FEATURE,
    TaskKind.PLUGIN: MAINTENANCE_PLUGIN_FEATURE,
}
"""What an agent names that can run the task; every agent runs the others."""
PLUGIN_SECONDS_MIN = 30
"""A node keeps some seconds of them for the report; without any left it would be quarantined for a plugin that never ran."""


@dataclass(frozen=True, slots=True)
class WantedTask:
    """What a window runs on each of its nodes. `plugin`: the file name of a plugin, of the kind `plugin` alone."""

    kind: TaskKind
    plugin: str | None
    seconds_max: int


@dataclass(frozen=True, slots=True)
class NodeOfWindow:
    """A locked node of the window, as far as its task is concerned. `whole`: the window has all of its slots."""

    node_id: UUID
    whole: bool
    features: Sequence[str]
    agent_version: str | None
    slot_count: int
    topology: JsonMapping | None


def require_task(wanted: WantedTask, starts_at: datetime, ends_at: datetime, now: datetime) -> None:
    """Raise `MaintenanceTaskInvalid` if the plugin is missing or too much or has too little time, or the window has."""
    if (wanted.kind is TaskKind.PLUGIN) is not (wanted.plugin is not None):
        raise MaintenanceTaskInvalid("`plugin` names the plugin of the task `plugin`, and of no other")
    if wanted.kind is TaskKind.PLUGIN and wanted.seconds_max < PLUGIN_SECONDS_MIN:
        raise MaintenanceTaskInvalid(f"a plugin has at least {PLUGIN_SECONDS_MIN} s; choose a larger timeout_seconds")
    if max(starts_at, now) + timedelta(seconds=wanted.seconds_max + MARGIN_SECONDS) > ends_at:
        raise MaintenanceTaskInvalid(
            f"the task may take {wanted.seconds_max} s, and the window must be {MARGIN_SECONDS} s longer; choose a later ends_at"
            " or a smaller timeout_seconds"
        )


def require_runnable(wanted: WantedTask, nodes: Sequence[NodeOfWindow]) -> None:
    """Raise `MaintenanceTaskUnsupported` if an agent does not know the task, or a node has no GPU for each slot.

    Raise `MaintenanceTaskInvalid` for a plugin on parts of a node: it may end what runs on the others.
    """
    parts = [one.node_id for one in nodes if not one.whole]
    if wanted.kind is TaskKind.PLUGIN and parts:
        raise MaintenanceTaskInvalid(
            f"a plugin runs on whole nodes, and the window has only slots of node {parts[0]}; name the node instead"
        )
    reasons = {str(one.node_id): why for one in nodes if (why := why_not_runnable(wanted.kind, one)) is not None}
    if reasons:
        raise MaintenanceTaskUnsupported.of(wanted.kind, reasons)


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
