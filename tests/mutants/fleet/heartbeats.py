"""Mutants of polls and heartbeats that are answered for many nodes at once, of what a waiting poll holds, and when it ends."""

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
_WAITING = "tests/nodes/test_waiting_polls.py"
_HEAP = "tests/api/test_heap.py"
_DISPATCHER = "orchestrator/tasks/dispatcher.py"
_DUE = (f"{_HEAP}::test_a_full_collection_is_due_when_memory_has_grown_or_time_has_passed",)
_CONCURRENT = (f"{_HEAP}::test_many_objects_that_live_for_a_while_cause_no_full_collection",)
_EVENT = (f"{_WAITING}::test_the_event_of_a_connection_wakes_every_waiter_as_any_event",)

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
    Mutant(
        "waiting: a wait that is over ends the next one",
        "tasks",
        _DISPATCHER,
        "        if self._waiters.get(node_id) is answered:\n            self._end(node_id)",
        "        self._end(node_id)",
        (f"{_WAITING}::test_a_wait_that_is_over_does_not_end_the_next_one_of_its_node",),
    ),
    Mutant(
        "waiting: a wait that was cancelled is counted",
        "tasks",
        _DISPATCHER,
        "            timer.cancel()\n            self._expire(node_id, answered)\n",
        "            timer.cancel()\n",
        (f"{_WAITING}::test_a_wait_ends_at_its_time_and_is_counted_no_longer",),
    ),
    Mutant(
        "waiting: a session is resumed without a certificate",
        "security",
        "orchestrator/edge/tls.py",
        "        context.num_tickets = 0\n",
        "",
        (f"{_WAITING}::test_no_session_of_a_node_is_resumed",),
    ),
    Mutant(
        "waiting: the serial is not kept with the connection",
        "security",
        "orchestrator/edge/listeners.py",
        'PEER_MEMBERS = ("subjectAltName", "serialNumber")',
        'PEER_MEMBERS = ("subjectAltName",)',
        (f"{_WAITING}::test_what_is_kept_of_a_certificate_names_its_node",),
    ),
    Mutant(
        "waiting: the connections of a certificate are counted for ever",
        "edge",
        "orchestrator/edge/listeners.py",
        "    first()\n    second()\n",
        "    first()\n",
        ("tests/security/attacks/test_node_flood.py",),
    ),
    Mutant(
        "waiting: a connection cannot be written to at first",
        "edge",
        "orchestrator/edge/connection_parts.py",
        "        self._value = is_set\n",
        "        self._value = False\n",
        _EVENT,
    ),
    Mutant(
        "waiting: the newest pipelined request is served first",
        "edge",
        "orchestrator/edge/connection_parts.py",
        "        self.insert(0, waiting)",
        "        self.append(waiting)",
        (f"{_WAITING}::test_pipelined_requests_are_served_in_their_order",),
    ),
    Mutant(
        "waiting: objects that live for a while cause full collections",
        "edge",
        "orchestrator/heap.py",
        "    gc.set_threshold(young, middle, NEVER)\n",
        "",
        _CONCURRENT,
    ),
    Mutant(
        "waiting: memory grows without a full collection",
        "edge",
        "orchestrator/heap.py",
        "            gc.collect()\n            used = ",
        "            used = ",
        _CONCURRENT,
    ),
    Mutant(
        "waiting: little growth is a reason",
        "edge",
        "orchestrator/heap.py",
        "max(GROWN_BYTES, ",
        "min(GROWN_BYTES, ",
        _DUE,
    ),
    Mutant(
        "waiting: time is no reason",
        "edge",
        "orchestrator/heap.py",
        " or now - self._last_at >= FULL_SECONDS_MAX",
        "",
        _DUE,
    ),
]
