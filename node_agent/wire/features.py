"""Names of what an agent understands: its protocol version, one name for each change (decision 0073).

Each heartbeat has the names. The control plane sends a task, or a member of one, that an earlier agent does not understand only
to agents that name its feature, and lists in `TaskBody.needs` what must not be passed over: an agent that does not know a listed
name refuses the task, also if it was issued before the agent stepped back to its version.
"""

from __future__ import annotations

from typing import Final

from node_agent.wire.attestations import ATTEST_FEATURE
from node_agent.wire.burn_in import BURN_IN_FEATURE
from node_agent.wire.console import CONSOLE_FEATURE
from node_agent.wire.gpu_reset import GPU_RESET_FEATURE
from node_agent.wire.guests import GUEST_SIZE_FEATURE
from node_agent.wire.images import IMAGE_CHECKS_FEATURE
from node_agent.wire.maintenance import MAINTENANCE_PLUGIN_FEATURE
from node_agent.wire.networks import NAMES_FEATURE, TENANT_NETWORK_FEATURE, VLAN_FEATURE, VXLAN_FEATURE

OPEN_TASKS_FEATURE: Final = "open_tasks"
"""The agent passes over members of tasks that it does not know, and reads `needs`; one of 0.2.0 refuses both."""
FEATURES: Final = (
    ATTEST_FEATURE, BURN_IN_FEATURE, CONSOLE_FEATURE, GPU_RESET_FEATURE, GUEST_SIZE_FEATURE, IMAGE_CHECKS_FEATURE,
    OPEN_TASKS_FEATURE,
)  # fmt: skip
"""What this version can do that an earlier one cannot: the control plane orders it of no other."""
UNDERSTOOD: Final = frozenset({
    *FEATURES, MAINTENANCE_PLUGIN_FEATURE, NAMES_FEATURE, TENANT_NETWORK_FEATURE, VLAN_FEATURE, VXLAN_FEATURE,
})  # fmt: skip
"""The names that a task for an agent of this version may list, whatever the node's settings are."""
