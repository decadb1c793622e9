"""The states of nodes and slots, the changes that operators may make to a node, and its attestation policy. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from orchestrator.problems import InvalidState


class NodeState(StrEnum):
    """The stored state, which operators give a node. Whether its agent responds is `online`, beside it."""

    REGISTERED = "registered"
    ACTIVE = "active"
    CORDONED = "cordoned"
    DRAINING = "draining"
    RETIRED = "retired"


class ShownState(StrEnum):
    """The one word that API and CLI show: the stored state, or what keeps a registered or active node as a whole from serving.

    Derived in one statement (store/shown_states.py), and never stored.
    """

    REGISTERED = "registered"
    ENROLLING = "enrolling"
    DISCOVERED = "discovered"
    BURN_IN = "burn_in"
    ACTIVE = "active"
    CORDONED = "cordoned"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    QUARANTINED = "quarantined"
    RETIRED = "retired"


class AttestationPolicy(StrEnum):
    """Whether a node proves that it has its TPM: never, if its agent offers to and from then on, or always."""

    OFF = "off"
    OFFERED = "offered"
    REQUIRED = "required"


class NodeAttestation(StrEnum):
    """What an operator sets for a node: its own policy, or that of its pool."""

    OFF = "off"
    OFFERED = "offered"
    REQUIRED = "required"
    POOL = "pool"

    @property
    def own(self) -> AttestationPolicy | None:
        """The node's own policy; None: that of its pool."""
        return None if self is NodeAttestation.POOL else AttestationPolicy(self.value)


class PolicySource(StrEnum):
    """Where the attestation policy of a node was set: for the node, for its pool, or nowhere."""

    NODE = "node"
    POOL = "pool"
    DEFAULT = "default"


class SlotState(StrEnum):
    """The state of a slot, derived from its claims and node.

    A claim takes precedence: a held slot of an offline node is held.
    """

    FREE = "free"
    HELD = "held"
    ALLOCATED = "allocated"
    CLEANUP_BLOCKED = "cleanup_blocked"
    OUT_OF_SERVICE = "out_of_service"


class NodeChange(StrEnum):
    """A change that an operator requests."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    RETIRE = "retire"


_S = NodeState
_NEXT: dict[NodeChange, dict[NodeState, NodeState]] = {
    # A draining node is cordoned already; cordoning it changes nothing.
    NodeChange.CORDON: {_S.ACTIVE: _S.CORDONED, _S.CORDONED: _S.CORDONED, _S.DRAINING: _S.DRAINING},
    # Of registered nodes only those without an agent: the first enrolment of an agent makes the others active.
    NodeChange.UNCORDON: {
        _S.REGISTERED: _S.ACTIVE,
        _S.ACTIVE: _S.ACTIVE,
        _S.CORDONED: _S.ACTIVE,
        _S.DRAINING: _S.ACTIVE,
    },
    NodeChange.RETIRE: dict.fromkeys(_S, _S.RETIRED),
    NodeChange.DRAIN: {_S.ACTIVE: _S.DRAINING, _S.CORDONED: _S.DRAINING, _S.DRAINING: _S.DRAINING},
}
TRANSITIONS: Final[frozenset[tuple[NodeState, NodeState]]] = frozenset(
    {
        # The adoption of a registered machine that runs already: its BMC says from then on whether it is online.
        (_S.REGISTERED, _S.CORDONED),
        *((before, after) for steps in _NEXT.values() for before, after in steps.items() if before is not after),
    }
)
"""The legal transitions; a trigger refuses all others (refuse_illegal_node_state)."""


def state_after(change: NodeChange, state: NodeState) -> NodeState:
    """The state that the change leads to, the same one if it is there already. Raises `InvalidState`."""
    following = _NEXT[change].get(state)
    if following is None:
        raise InvalidState(f"a node that is {state.value} does not take {change.value}", state=state.value)
    return following
