"""Mutants of polls and heartbeats that are answered for many nodes at once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_NOTE = "migrations/functions/nodes/note_heartbeats.sql"
_POLLS = "orchestrator/tasks/store/polls.py"
_SAME = ("tests/nodes/heartbeats/test_together.py::test_whatever_changes_a_heartbeat_does_the_same_together_and_alone",)
_WAYS = ("tests/nodes/heartbeats/test_short_path.py::test_both_ways_answer_the_same",)
_ENDED = ("tests/nodes/test_identity_and_dispatch.py::test_what_no_longer_counts_is_refused_at_once",)
_DIFFERENCES = [
    ("counts with a revoked certificate", "c.revoked_at is null and ", ""),
    ("counts with a certificate that is over", " and c.not_after > clock_timestamp()", ""),
    ("counts with a certificate of another epoch", " and n.epoch = c.node_epoch", ""),
    ("brings a node online without event", "n.online and ", ""),
    ("of a retired node counts", "n.state <> 'retired' and ", ""),
    ("of a suspended node counts", " and n.identity_conflict_at is null", ""),
    ("changes the driver", " and i.driver = n.driver", ""),
    ("takes any driver of the pool", " and coalesce(p.driver = i.driver, i.is_sandbox)", ""),
    ("moves a node unnoticed", "\n          and i.underlay is not distinct from n.underlay", ""),
    ("takes an inventory from the future", "between n.created_at and clock_timestamp()", "> n.created_at"),
    ("takes an inventory of before the node", "between n.created_at and", "between '-infinity' and"),
    ("takes an older inventory", "\n          and (n.inventory_after is null or n.inventory_after < i.gathered_after)", ""),
    ("leaves what its inventory shows", "or n.id = any (newer) and exists", "or false and exists"),
    ("forgets the inventory", "when n.id = any (newer) then i.inventory else", "when false then i.inventory else"),
    ("leaves the agent's run", "agent_run = coalesce(i.agent_run, n.agent_run)", "agent_run = n.agent_run"),
    ("does not count as one", "            last_seen_at = clock_timestamp(), held", "            held"),
]  # fmt: skip

MUTANTS: list[Mutant] = [
    *(Mutant(f"together: a heartbeat {what}", "nodes", _NOTE, old, new, _SAME) for what, old, new in _DIFFERENCES),
    Mutant(
        "together: a node that is locked delays all",
        "nodes",
        _NOTE,
        "for no key update of n skip locked",
        "for no key update of n",
        ("tests/nodes/heartbeats/test_together.py::test_a_node_that_another_transaction_holds_delays_no_other",),
    ),
    Mutant(
        "together: a heartbeat that fails fails all",
        "nodes",
        "orchestrator/nodes/commands/heartbeat.py",
        "    except (TransactionConflict, OperationInProgress, DBAPIError):\n",
        "    except TransactionConflict:\n",
        ("tests/nodes/heartbeats/test_together.py::test_a_node_whose_heartbeat_fails_fails_no_other",),
    ),
    Mutant(
        "together: a time keeps an offset that PostgreSQL refuses",
        "nodes",
        "node_agent/wire/fields.py",
        "return moment.astimezone(UTC)",
        "return moment",
        ("tests/nodes/heartbeats/test_together.py::test_any_time_that_the_protocol_allows_is_no_error",),
    ),
    Mutant(
        "together: what an agent knows of its networks is taken for all",
        "nodes",
        _NOTE,
        "i.connects and i.etag is distinct from (select w.etag from networks_on_node(n.id) w)",
        "false",
        ("tests/networks/test_spanning.py::test_together_a_node_learns_of_what_changed_alone",),
    ),
    Mutant("together: a revoked certificate polls", "tasks", _POLLS, " and c.revoked_at is null", "", _ENDED),
    Mutant("together: a retired node polls", "tasks", _POLLS, "\n    and n.state <> 'retired'", "", _ENDED),
    Mutant("together: an earlier epoch polls", "tasks", _POLLS, " and n.epoch = c.node_epoch)", ")", _ENDED),
    Mutant(
        "together: a node in conflict polls",
        "tasks",
        "orchestrator/tasks/endpoints.py",
        "if polling.in_conflict:",
        "if False:",
        _WAYS,
    ),
    Mutant(
        "together: a poll asks for no dispatched task",
        "tasks",
        "orchestrator/tasks/endpoints.py",
        "if not polling.dispatched <= set(known):",
        "if False:",
        ("tests/nodes/test_identity_and_dispatch.py::test_a_lost_answer_loses_no_task",),
    ),
    Mutant(
        "together: a poll that may be cached",
        "tasks",
        "orchestrator/edge/fast_paths/node.py",
        "await _send_json(answer, NO_STORE, scope, receive, send)",
        "await _send_json(answer, {}, scope, receive, send)",
        _WAYS,
    ),
    Mutant(
        "together: a poll takes any parameter",
        "tasks",
        "orchestrator/edge/fast_paths/node.py",
        "        else:\n            return None\n",
        "",
        (
            "tests/nodes/heartbeats/test_short_path.py::test_a_poll_that_is_not_in_order_is_refused_as_the_endpoint_refuses_it",
        ),
    ),
]
