"""The one word that shows the state of a node, as SQL over a row of `nodes` (docs/reference/fleet/node-states.md)."""

from __future__ import annotations

from typing import Final

from orchestrator.nodes.states import ShownState

# What operators gave a node comes first: only a registered or active one shows what keeps it as a whole from serving. A slot
# that is free for good serves, so that the slots are read of few nodes.
SHOWN_STATE: Final = """
(case when nodes.state = 'registered' and exists (
               select from enrolment_tokens t
               where t.node_id = nodes.id and t.used_at is null and t.expires_at > clock_timestamp()) then 'enrolling'
      when nodes.state = 'active' and nodes.slot_count = 0 then
          case when exists (select from node_topologies t where t.node_id = nodes.id and t.found is not null)
               then 'discovered' else 'enrolling' end
      when nodes.state <> 'active' or nodes.free_mask <> 0 then nodes.state
      else (select case when bool_or(not one.stopped and not one.maintained) then 'active'
                        when bool_or(one.maintained) then 'maintenance'
                        when exists (select from node_burn_ins b where b.node_id = nodes.id and b.ended_at is null) then 'burn_in'
                        else 'quarantined' end
            from (select s.state = 'out_of_service' as stopped,
                         exists (select from claims c
                                 where c.node_id = s.node_id and c.closed_at is null and c.owner_kind = 'maintenance'
                                   and c.units @> s.unit and c.during @> clock_timestamp()) as maintained
                  from slots s where s.node_id = nodes.id) one) end)
"""
_STOPPED = "nodes.id in (select node_id from slots where state = 'out_of_service')"
_IN_WINDOW = """
nodes.id in (select u.node_id from maintenance_units u join maintenance_windows w on w.id = u.window_id
             where w.waits_until is not null and w.starts_at <= clock_timestamp())
"""
NARROWED: Final[dict[ShownState, str]] = {
    ShownState.REGISTERED: "nodes.state = 'registered'",
    ShownState.ENROLLING: "(nodes.state = 'registered' or nodes.slot_count = 0)",
    ShownState.DISCOVERED: "nodes.slot_count = 0",
    ShownState.BURN_IN: "nodes.id in (select node_id from node_burn_ins where ended_at is null)",
    ShownState.ACTIVE: "nodes.state = 'active'",
    ShownState.CORDONED: "nodes.state = 'cordoned'",
    ShownState.DRAINING: "nodes.state = 'draining'",
    ShownState.MAINTENANCE: _IN_WINDOW,
    ShownState.QUARANTINED: _STOPPED,
    ShownState.RETIRED: "nodes.state = 'retired'",
}
"""A condition that every node shown so meets, so that a filter derives the state of few nodes.

Indexes answer it, except for `active`, since of most fleets most nodes are so, and for `retired`, which may read all nodes.
"""
