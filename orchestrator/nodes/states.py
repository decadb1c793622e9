"""What operators may do to a node, by the state it is in. Pure."""

from __future__ import annotations

from enum import StrEnum

from orchestrator.allocations.states import NodeState
from orchestrator.problems import InvalidState


class NodeChange(StrEnum):
    """An operator's wish."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    RETIRE = "retire"


_S = NodeState
_NEXT: dict[NodeChange, dict[NodeState, NodeState]] = {
    # A draining node is cordoned already; cordoning it changes nothing.
    NodeChange.CORDON: {_S.ACTIVE: _S.CORDONED, _S.CORDONED: _S.CORDONED, _S.DRAINING: _S.DRAINING},
    NodeChange.UNCORDON: {_S.ACTIVE: _S.ACTIVE, _S.CORDONED: _S.ACTIVE, _S.DRAINING: _S.ACTIVE},
    NodeChange.RETIRE: dict.fromkeys(_S, _S.RETIRED),
    NodeChange.DRAIN: {_S.ACTIVE: _S.DRAINING, _S.CORDONED: _S.DRAINING, _S.DRAINING: _S.DRAINING},
}


def state_after(change: NodeChange, state: NodeState) -> NodeState:
    """The state that the change leads to, the same one if it is there already. Raises `InvalidState`."""
    following = _NEXT[change].get(state)
    if following is None:
        raise InvalidState(f"a node that is {state.value} does not take {change.value}", state=state.value)
    return following
