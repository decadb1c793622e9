"""Mutants of what guards processes and servers from outside the code of a request: roles, policies, TLS, keys, containers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ROWS = "tests/database/test_row_security.py"
_READS = f"{_ROWS}::test_a_statement_without_a_filter_reads_only_rows_of_the_named_tenants"
_POLICIES = "migrations/policies.sql"
_RIGHTS = "migrations/privileges.sql"
_MAY_NOT = "tests/database/test_privileges.py::test_what_a_role_must_not_do_is_refused"
_NATS = "berth/local/nats-roles.conf"
_SETS = "tests/node_agent/test_key_sets.py"
_PROXY = "orchestrator/edge/proxy_protocol.py"
_NO_HEADER = "tests/security/test_sources.py::test_anything_else_is_no_proxy_header"
_FOUR_EYES = "tests/approvals/test_four_eyes.py"
_STATES = "tests/security/test_connections.py"
_COMPOSE = "tests/deploy/test_compose.py::test_containers_have_no_rights_that_they_do_not_need"

MUTANTS: list[Mutant] = [
    Mutant(
        "rows of webhooks' deliveries have no policy",
        "database",
        _POLICIES,
        "            ('webhook_deliveries',         'all',    'webhook_id',    'webhooks'),\n",
        "",
        (_READS,),
    ),
    Mutant(
        "archived allocations have no policy",
        "database",
        _POLICIES,
        "            ('archived_allocations',       'tenant_id'),\n",
        "",
        (_READS,),
    ),
    Mutant(
        "the policy of keys and values names no tenant",
        "database",
        _POLICIES,
        "            ('kv_keys',                    'namespace'),\n",
        "",
        (_READS,),
    ),
    Mutant(
        "the public API's role may write the audit directly",
        "database",
        _RIGHTS,
        "            ('audit',                       's', ",
        "            ('audit',                       'siud', ",
        (_MAY_NOT, "tests/database/test_privileges.py::test_each_role_has_exactly_the_rights_that_the_page_lists"),
    ),
    Mutant(
        "the worker's user of NATS may delete the stream",
        "security",
        _NATS,
        'WORKER_MAY {\n  publish {\n    allow: [\n',
        'WORKER_MAY {\n  publish {\n    allow: [\n      "$JS.API.STREAM.>"\n',
        ("tests/security/test_nats_roles.py::test_only_relay_and_operators_change_the_stream",),
    ),
    Mutant(
        "a PROXY header of any length is read",
        "edge",
        _PROXY,
        " or length > BODY_BYTES_MAX:\n",
        ":\n",
        (_NO_HEADER,),
    ),
    Mutant(
        "a PROXY header that is too short for its addresses is read",
        "edge",
        _PROXY,
        "    if length < 2 * size + 4:\n",
        "    if False:\n",
        (_NO_HEADER,),
    ),
    Mutant(
        "a served connection may stay silent for an hour",
        "edge",
        "orchestrator/edge/listeners.py",
        "timeout_keep_alive=IDLE_SECONDS_MAX,",
        "timeout_keep_alive=3600,",
        (f"{_STATES}::test_a_served_connection_that_sends_nothing_more_is_closed",),
    ),
    Mutant(
        "all handshakes of a turn begin together",
        "edge",
        "orchestrator/edge/handshakes.py",
        "            taken = self._waiting.take(1)\n",
        "            taken = self._waiting.take(100)\n",
        ("tests/security/attacks/test_handshakes.py::test_one_handshake_begins_in_a_turn_of_the_event_loop",),
    ),
    Mutant(
        "an agent takes an older set of keys",
        "agent",
        "node_agent/key_sets.py",
        "        if offered.serial < self._least_serial:\n",
        "        if False:\n",
        (f"{_SETS}::test_a_planted_key_set_is_refused_and_the_set_in_use_stays",),
    ),
    Mutant(
        "an agent takes other keys under the serial in use",
        "agent",
        "node_agent/key_sets.py",
        " and envelope.payload != self._payload:\n",
        " and False:\n",
        (f"{_SETS}::test_a_planted_key_set_is_refused_and_the_set_in_use_stays",),
    ),
    Mutant(
        "an enrolment token is sent without TLS",
        "agent",
        "node_agent/pinning.py",
        "    if not _is_https(api_url):\n        if not",
        "    if not _is_https(api_url):\n        if False and not",
        ("tests/node_agent/test_pinned_enrolment.py::test_a_token_that_must_not_be_sent_is_a_sentence_without_the_token",),
    ),
    Mutant(
        "a break-glass key is used although its event was not written",
        "audit",
        "orchestrator/http/audited/break_glass.py",
        "                seconds = await self._note(self._database, principal, source)\n",
        "                seconds = 60.0\n",
        ("tests/security/test_break_glass.py::test_the_event_of_a_use_is_committed_before_its_effect",),
    ),
    Mutant(
        "an operator approves a request with another key after a rotation",
        "security",
        "orchestrator/approvals/rules.py",
        "    if one.id == other.id or other.id in line:\n",
        "    if one.id == other.id:\n",
        (f"{_FOUR_EYES}::test_keys_without_an_owner_that_a_rotation_connects_are_one_person",),
    ),
    Mutant(
        "an operator approves a request with a second key",
        "security",
        "orchestrator/approvals/rules.py",
        "    return one.owner is not None and other.owner is not None and one.owner.casefold() == other.owner.casefold()\n",
        "    return False\n",
        (f"{_FOUR_EYES}::test_the_requester_does_not_approve_with_the_same_or_another_key",),
    ),
    Mutant(
        "another machine's PostgreSQL is not verified",
        "security",
        "berth/process/server_addresses.py",
        "    return f\"{url}{'&' if parts.query else '?'}sslmode=verify-full\"\n",
        "    return url\n",
        ("tests/database/test_tls.py::test_another_machine_is_verified_by_default",),
    ),
    Mutant(
        "another machine's Temporal is reached without TLS",
        "worker",
        "berth/process/temporal_connections.py",
        "    return not is_here(host_of(address)) or any(_given(settings))",
        "    return any(_given(settings))",
        ("tests/worker/test_temporal_tls.py",),
    ),
    Mutant(
        "the source of an audit row is forgotten",
        "audit",
        "orchestrator/http/audited/callers.py",
        '        caller["source"] = source\n',
        "        pass\n",
        ("tests/audit/test_recorded.py::test_the_address_is_the_callers_which_only_a_trusted_proxy_may_name",),
    ),
    Mutant(
        "the bill of materials leaves a lock out",
        "security",
        "Makefile",
        "PRODUCT_LOCKS = requirements.lock requirements-libvirt.lock\n",
        "PRODUCT_LOCKS = requirements.lock\n",
        ("tests/deploy/test_supply_chain.py::test_the_bill_of_materials_is_valid_and_holds_every_package_with_every_hash",),
    ),
    Mutant(
        "a container of PostgreSQL keeps every capability",
        "security",
        "deploy/compose.yaml",
        "    cap_drop: [ALL]\n    cap_add: [CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID]\n",
        "    cap_add: [CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID]\n",
        (_COMPOSE,),
    ),
]  # fmt: skip
