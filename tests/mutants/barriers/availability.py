"""Mutants of what keeps one caller from stopping a process: waits, documents, streams, open files, consoles."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WAITING = "tests/security/attacks/test_waiting_requests.py"
BUFFERS = "tests/log/test_buffers.py"
DOCUMENTS = "tests/security/attacks/test_documents.py"
FILES = "tests/security/attacks/test_open_files.py"


def _edge(name: str, file: str, text: str, instead: str, test: str) -> Mutant:
    return Mutant(name, "edge", file, text, instead, (test,))


MUTANTS: list[Mutant] = [
    _edge(
        "a request that waits keeps its place",
        "orchestrator/edge/edge.py",
        "        self.pause()\n        self._waits_since",
        "        self._waits_since",
        f"{WAITING}::test_one_principals_waiting_requests_leave_the_places_to_others[/1/wait]",
    ),
    _edge(
        "few principals take all places",
        "orchestrator/edge/edge.py",
        "return own <= self._edge.free",
        "return True",
        f"{WAITING}::test_few_principals_do_not_take_all_places",
    ),
    _edge(
        "a wait counts as the time for a body",
        "orchestrator/edge/edge.py",
        "self.waited_seconds += ",
        "self.waited_seconds += 0 * ",
        f"{WAITING}::test_a_body_may_come_after_the_wait",
    ),
    _edge(
        "the body of a request that waits is read on",
        "orchestrator/edge/connection_parts.py",
        "    found.flow.pause_reading()\n",
        "",
        f"{WAITING}::test_a_body_may_come_after_the_wait",
    ),
    _edge(
        "a full table refuses each request that arrives",
        "orchestrator/http/waiting_requests.py",
        "if largest is None or",
        "if True or",
        f"{WAITING}::test_in_a_full_table_the_principal_with_most_makes_room",
    ),
    _edge(
        "a body may come in any number of pieces",
        "orchestrator/edge/connections.py",
        "if self._pieces > PIECES_MAX:",
        "if False:",
        "tests/security/attacks/test_bodies_in_pieces.py::test_a_body_of_one_byte_chunks_ends_the_connection",
    ),
    _edge(
        "each IPv6 address is a source",
        "berth/process/limits/source_addresses.py",
        'if spelt is None or ":" not in spelt:',
        "if True:",
        "tests/security/attacks/test_ipv6_sources.py::test_connections_are_counted_by_network",
    ),
    _edge(
        "each response has a copy of the document",
        "orchestrator/http/static_documents.py",
        "for piece in self._encoded.pieces:",
        'for piece in (b"".join(self._encoded.pieces),):',
        f"{DOCUMENTS}::test_it_is_encoded_once_and_not_on_the_event_loop",
    ),
    _edge(
        "what waits for a tenant's streams has no bound",
        "orchestrator/log/feed/buffers.py",
        "held.size > self._tenant_bytes_max",
        "False",
        f"{BUFFERS}::test_a_tenant_beyond_its_bound_loses_its_slowest_streams_and_no_other",
    ),
    _edge(
        "what waits for streams has no bound",
        "orchestrator/log/feed/buffers.py",
        "self._size > self._bytes_max",
        "False",
        f"{BUFFERS}::test_the_tenant_with_most_makes_room_in_the_process",
    ),
    _edge(
        "events are encoded for each filter",
        "orchestrator/log/feed/feed.py",
        "of_tenants[audience.tenant_id], encoded)",
        "of_tenants[audience.tenant_id])",
        f"{BUFFERS}::test_events_for_many_filters_are_distributed_beside_other_work",
    ),
    _edge(
        "a listener accepts more connections than files may be open",
        "orchestrator/edge/counting/connection_bounds.py",
        "total = min(settings.connections_max, allowed)",
        "total = settings.connections_max",
        f"{FILES}::test_connections_are_what_open_files_allow",
    ),
    _edge(
        "a flood from one source cuts off the agents of others",
        "orchestrator/edge/console_listener.py",
        "key = source_key(source)",
        'key = "one"',
        "tests/consoles/test_attacks.py::test_a_flood_from_another_source_cuts_off_no_agent",
    ),
]
