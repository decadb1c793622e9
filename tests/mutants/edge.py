"""Mutants of the edge: connections, strangers, requests in flight."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "a served connection may send nothing for ever",
        "edge",
        "orchestrator/edge/connections.py",
        "elif self._timer is None and self._is_idle():",
        "elif False:",
        ("tests/security/test_connections.py::test_a_served_connection_has_the_same_deadline[an empty line]",),
    ),
    Mutant(
        "a head of any size",
        "edge",
        "orchestrator/edge/connections.py",
        "if self._unparsed > HEAD_BYTES_MAX and not self._deaf:",
        "if False:",
        (
            "tests/security/test_connections.py::test_a_head_beyond_the_bound_is_refused_before_it_ends[in small pieces]",
        ),
    ),
    Mutant(
        "a head of any number of fields",
        "edge",
        "orchestrator/edge/connections.py",
        " or len(self.headers) > FIELDS_MAX",
        "",
        ("tests/security/test_connections.py::test_a_head_may_have_so_many_fields_and_no_more",),
    ),
    Mutant(
        "trailer fields become headers",
        "edge",
        "orchestrator/edge/connections.py",
        "if self._head_done:\n            self._refusal",
        "if False:\n            self._refusal",
        ("tests/security/test_connections.py::test_what_follows_a_body_ends_the_connection[a trailer field]",),
    ),
    Mutant(
        "an unread body keeps the connection",
        "edge",
        "orchestrator/edge/edge.py",
        'state["end_if_unread"]()',
        "pass",
        ("tests/security/test_connections.py::test_a_body_that_never_comes_ends_the_connection[one byte more]",),
    ),
    Mutant(
        "an unread response keeps the connection",
        "edge",
        "orchestrator/edge/connections.py",
        "self._unread_timer = self.loop.call_later(UNREAD_SECONDS_MAX, self.transport.abort)",
        "pass",
        ("tests/security/test_connections.py::test_a_client_that_reads_no_response_is_disconnected",),
    ),
    Mutant(
        "any number of requests wait in a connection",
        "edge",
        "orchestrator/edge/connections.py",
        "if len(self.pipeline) >= PIPELINED_MAX:",
        "if False:",
        ("tests/security/test_connections.py::test_requests_that_wait_for_a_response_are_bounded",),
    ),
    Mutant(
        "any number of connections from one address",
        "edge",
        "orchestrator/edge/connection_counts.py",
        "self._by_source[source] >= self._per_source_max",
        "False",
        ("tests/security/test_connections.py::test_connections_of_one_source_are_bounded",),
    ),
    Mutant(
        "an unread response counts as a request in flight",
        "edge",
        "orchestrator/edge/edge.py",
        "self._count(-counted)\n                counted = 0",
        "pass",
        (
            "tests/security/test_connections.py::test_clients_that_keep_others_waiting_are_not_in_flight[unread responses]",
        ),
    ),
    Mutant(
        "an awaited body counts as a request in flight",
        "edge",
        "orchestrator/edge/edge.py",
        "self._count(-1)  #",
        "self._count(0)  #",
        ("tests/security/test_connections.py::test_clients_that_keep_others_waiting_are_not_in_flight[half a body]",),
    ),
    Mutant(
        "a stranger's body is read",
        "edge",
        "orchestrator/edge/fast_path.py",
        'scope["path"] in OPEN_PATHS:',
        'scope["path"] not in ROUTES:',
        (
            "tests/security/test_strangers.py::test_a_stranger_is_refused_before_its_body_arrives[POST /api/v1/webhooks]",
        ),
    ),
    Mutant(
        "every item of a list of nonsense is validated",
        "edge",
        "orchestrator/keyvalue/schemas.py",
        'DeleteRange, Field(discriminator="type")]], FailFast()',
        'DeleteRange, Field(discriminator="type")]], None',
        ("tests/security/test_strangers.py::test_a_list_of_nonsense_is_refused_at_its_first_item",),
    ),
    Mutant(
        "every unknown key has its own query",
        "edge",
        "orchestrator/http/key_lookups.py",
        "async with self._turns[verb]:",
        "if True:",
        ("tests/security/test_unknown_keys.py::test_keys_that_are_asked_for_together_are_one_query_at_a_time",),
    ),
    Mutant(
        "the key of a release waits behind the keys of other requests",
        "edge",
        "orchestrator/http/key_lookups.py",
        "verb = database.ending_verb",
        'verb = ""',
        ("tests/security/test_unknown_keys.py::test_keys_that_are_asked_for_together_are_one_query_at_a_time",),
    ),
    Mutant(
        "an operation returns a webhook's sealed secret",
        "edge",
        "orchestrator/operations/sealing.py",
        '("key", "token", "secret")',
        '("key", "token")',
        ("tests/api/tenants/test_secrets.py::test_no_log_line_and_no_row_has_a_secret_of_the_run",),
    ),
]
