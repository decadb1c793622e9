"""Mutants of serial consoles: rights to a session, one client at a time, and ends that are recorded."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONSOLES = "orchestrator/consoles"
AGENT = "node_agent/consoles/consoles.py"
ATTACKS = "tests/consoles/test_attacks.py"
KEEPING = "tests/consoles/test_keeping.py"
HANDING_OVER = "tests/node_agent/consoles/test_handing_over.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "consoles: another tenant's allocation is opened",
        "consoles",
        f"{CONSOLES}/rules.py",
        "    if target is None or target.tenant_id != tenant_id:",
        "    if target is None:",
        (f"{ATTACKS}::test_the_rule_refuses_another_tenant_also_where_it_reads_the_row",),
    ),
    Mutant(
        "consoles: a role that may not write attaches",
        "consoles",
        f"{CONSOLES}/endpoints.py",
        "        check_roles(attach, caller)\n",
        "",
        (f"{ATTACKS}::test_a_role_that_may_not_write_gets_no_console",),
    ),
    Mutant(
        "consoles: the agent of any node joins",
        "consoles",
        f"{CONSOLES}/hub.py",
        "        if session is None or session.node_id != node_id or session.link.done() or session.ended.done():\n"
        "            return None\n",
        "        if session is None or session.link.done() or session.ended.done():\n"
        "            return None\n"
        "        node_id = session.node_id\n",
        (f"{ATTACKS}::test_the_agent_of_another_node_gets_nothing",),
    ),
    Mutant(
        "consoles: any hash of the secret is taken",
        "consoles",
        f"{CONSOLES}/hub.py",
        "    return hmac.compare_digest(hello.secret_sha256, hashlib.sha256(session.secret).hexdigest())",
        "    return bool(hello.secret_sha256)",
        (f"{ATTACKS}::test_a_wrong_hash_gets_nothing",),
    ),
    Mutant(
        "consoles: a second session of a guest is not refused as busy",
        "consoles",
        f"{CONSOLES}/commands.py",
        '        if attached and new.mode == "attach":',
        "        if False:",
        ("tests/consoles/test_bounds.py::test_of_two_at_once_one_types",),
    ),
    Mutant(
        "consoles: a refused token does not end its session",
        "consoles",
        "orchestrator/http/sockets/credentials.py",
        "            if problem.status in CREDENTIAL_REFUSED:",
        '            if problem.code == "unauthenticated":',
        ("tests/consoles/test_tokens.py",),
    ),
    Mutant(
        "notifications: a refused token does not end its socket",
        "notifications",
        "orchestrator/notifications/sockets.py",
        '        self._subscriber.finish("unauthenticated")',
        "        return",
        ("tests/consoles/test_tokens.py::test_the_suspension_of_its_tenant_ends_a_socket",),
    ),
    Mutant(
        "consoles: every row of the process is confirmed",
        "consoles",
        f"{CONSOLES}/store.py",
        "    where id = any(cast(:ids as uuid[])) and process_id = :process_id and ended_at is null\n",
        "    where cast(:ids as uuid[]) is not null and process_id = :process_id and ended_at is null\n",
        (f"{KEEPING}::test_a_session_whose_end_is_not_recorded_is_not_confirmed",),
    ),
    Mutant(
        "consoles: a process without a database keeps its sessions",
        "consoles",
        f"{CONSOLES}/hub.py",
        "                    if loop.time() - session.confirmed_at >= self._unconfirmed_seconds_max:",
        "                    if False:",
        (f"{KEEPING}::test_a_process_that_loses_the_database_ends_its_sessions",),
    ),
    Mutant(
        "consoles: a session that is too late takes a turn of the worker",
        "consoles",
        f"{CONSOLES}/store.py",
        "task_id is null and waits_until > clock_timestamp()\n",
        "task_id is null\n",
        (f"{KEEPING}::test_sessions_that_are_too_late_take_no_turn_of_the_worker",),
    ),
    Mutant(
        "consoles: any count of dropped bytes is taken",
        "consoles",
        "node_agent/wire/console.py",
        "    if number > INTEGER_MAX:",
        "    if False:",
        (f"{ATTACKS}::test_what_is_no_frame_ends_the_session",),
    ),
    Mutant(
        "consoles: the sum of dropped bytes has no bound",
        "consoles",
        f"{CONSOLES}/sockets.py",
        "                self._session.dropped = min(self._session.dropped + count, INTEGER_MAX)",
        "                self._session.dropped += count",
        (f"{ATTACKS}::test_counts_beyond_any_number_do_not_keep_the_end_from_being_recorded",),
    ),
    Mutant(
        "consoles: silent connections keep agents out",
        "consoles",
        "orchestrator/edge/console_listener.py",
        "        self._make_room_for(key)\n",
        "        if len(self._strangers.get(key, ())) >= 64:\n            connection.close()\n            return\n",
        (f"{ATTACKS}::test_connections_without_a_certificate_take_no_place_of_a_session",),
    ),
    Mutant(
        "consoles: a node that was enrolled again keeps its session",
        "consoles",
        f"{CONSOLES}/store.py",
        "n.identity_conflict_at is not null or t.node_epoch <> n.epoch then",
        "n.identity_conflict_at is not null then",
        ("tests/consoles/test_sessions.py::test_a_node_that_loses_its_identity_ends_the_session",),
    ),
    Mutant(
        "consoles: an older session takes the place of the newer one",
        "consoles",
        AGENT,
        '            await _say_end(link, ConsoleEnd(reason="superseded"))\n            return session.report()\n',
        "            held = None\n",
        ("tests/node_agent/consoles/test_agent.py::test_a_newer_session_takes_over_and_an_older_one_does_not",),
    ),
    Mutant(
        "consoles: a newer session does not wait for the older one",
        "consoles",
        AGENT,
        "            if before is not None and not await before.closed(min(HANDOVER_SECONDS_MAX, seconds_max)):",
        "            if False:",
        (HANDING_OVER,),
    ),
    Mutant(
        "consoles: a console is opened without a bound",
        "consoles",
        AGENT,
        "            first: set[asyncio.Future[Any]] = {ending, holder.opened}",
        "            first: set[asyncio.Future[Any]] = {holder.opened}",
        (f"{HANDING_OVER}::test_a_console_that_does_not_open_ends_with_its_session_and_is_not_opened_again",),
    ),
]
