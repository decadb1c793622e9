"""Mutants of consoles of machines: which agent serves one, what it must not reach, and what ends it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SESSIONS = "node_agent/bmc_consoles/sessions.py"
_SSH = "node_agent/bmc_consoles/ssh.py"
_MACHINE = "node_agent/bmc_consoles/machine_console.py"
_KEYS = "node_agent/bmc_consoles/hot_keys.py"
_STORE = "orchestrator/consoles/site_store.py"
_RULES = "orchestrator/consoles/rules.py"
_SERVED = "tests/sites/consoles/test_sessions.py"
_ATTACKS = "tests/sites/consoles/test_attacks.py"
_BENCH = "tests/node_agent/bmc_consoles/test_machine_console.py"
_KEY_TESTS = "tests/node_agent/bmc_consoles/test_hot_keys.py"


def _console(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"metal consoles: {what}", "consoles", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _console(
        "a session goes on beside a task about the machine",
        _SESSIONS,
        "        if task in KEEPING:",
        "        if task is not None:",
        f"{_SERVED}::test_a_task_about_the_machine_ends_the_session_first",
    ),
    _console(
        "a look ends the session",
        _SESSIONS,
        "KEEPING: Final = frozenset({TaskType.METAL_LOOK, TaskType.METAL_RESEAL})",
        "KEEPING: Final[frozenset[TaskType]] = frozenset()",
        f"{_SERVED}::test_a_task_about_the_machine_ends_the_session_first",
    ),
    _console(
        "a refused login is tried again",
        _SESSIONS,
        "            if self._refused.get(order.body.node_id) == login:",
        "            if False:",
        f"{_SERVED}::test_a_refused_login_is_not_tried_again",
    ),
    _console(
        "a login that Redfish refused is tried again",
        _MACHINE,
        "                self._login_refused()\n            raise ConsoleRefused(problem.code",
        "                pass\n            raise ConsoleRefused(problem.code",
        f"{_BENCH}::test_what_redfish_says_names_the_refusal",
    ),
    _console(
        "another account is not tried after a refusal",
        _SESSIONS,
        "login = named.url, named.username, tuple",
        'login = "", "", tuple',
        f"{_SERVED}::test_another_account_is_tried_after_a_refusal",
    ),
    _console(
        "bytes pass after the lease",
        _SSH,
        "                guard()\n                await loop.sock_sendall(self._ours, data)",
        "                await loop.sock_sendall(self._ours, data)",
        f"{_BENCH}::test_nothing_passes_after_the_lease",
    ),
    _console(
        "what was typed passes after the lease",
        _SSH,
        "                guard()\n                self._channel.stdin.write",
        "                self._channel.stdin.write",
        f"{_BENCH}::test_nothing_passes_after_the_lease",
    ),
    _console(
        "what the BMC replays is passed on",
        _SSH,
        "        await self._drop_replay()\n",
        "",
        f"{_BENCH}::test_what_was_printed_before_is_not_passed_on",
    ),
    _console(
        "the quiet before a replay ends its dropping",
        _SSH,
        "until, quiet = loop.time() + REPLAY_SECONDS_MAX, REPLAY_SECONDS_MAX",
        "until, quiet = loop.time() + REPLAY_SECONDS_MAX, QUIET_SECONDS",
        f"{_BENCH}::test_what_was_printed_before_is_not_passed_on",
    ),
    _console(
        "the kernel sends what was typed after the end",
        _SSH,
        "        _set(self._connection, socket.SOL_SOCKET, socket.SO_LINGER, _DISCARDS)\n",
        "",
        f"{_BENCH}::test_what_a_bmc_has_not_taken_never_reaches_it_after_the_end",
    ),
    _console(
        "the kernel keeps what was typed beyond the lease",
        _SSH,
        "            _set(connection, socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)\n",
        "",
        f"{_BENCH}::test_a_bmc_that_takes_nothing_loses_the_connection_with_the_lease",
    ),
    _console(
        "any host key is trusted",
        _SSH,
        "        self.seen = key.get_fingerprint()\n        return False",
        "        self.seen = key.get_fingerprint()\n        return True",
        f"{_BENCH}::test_another_host_key_gets_no_password",
    ),
    _console(
        "a forbidden console is opened",
        _MACHINE,
        "        if self._is_forbidden:\n            raise ConsoleRefused",
        "        if False:\n            raise ConsoleRefused",
        f"{_BENCH}::test_a_forbidden_console_passes_no_byte_and_leaves_no_connection",
    ),
    _console(
        "a shared console is entered without an operator's word",
        _MACHINE,
        "        if not (shared_allowed and is_entered):",
        "        if not is_entered:",
        f"{_BENCH}::test_a_console_that_may_lead_to_the_command_line_is_refused",
    ),
    _console(
        "a console that is not said to be separate is separate",
        "node_agent/redfish/serial_consoles.py",
        'shared=ssh.flag("SharedWithManagerCLI"))',
        'shared=ssh.flag("SharedWithManagerCLI") or False)',
        "tests/redfish/test_serial_consoles.py::test_a_console_is_as_the_system_announces_it",
    ),
    _console(
        "hot keys that are not understood are none",
        _MACHINE,
        "    if keys is None or (found.shared is not False and not keys):",
        "    keys = keys or ()\n    if found.shared is not False and not keys:",
        f"{_BENCH}::test_a_console_that_may_lead_to_the_command_line_is_refused",
    ),
    _console(
        "the hot keys reach the BMC in two pieces",
        _KEYS,
        "        del self._passed[: max(0, len(self._passed) - len(self._keys) + 1)]",
        "        self._passed.clear()",
        f"{_KEY_TESTS}::test_what_passes_never_contains_the_sequence",
    ),
    _console(
        "a text with a second sequence is read",
        _KEYS,
        '_ANNOUNCED.fullmatch(display.strip(" "))',
        '_ANNOUNCED.match(display.strip(" "))',
        f"{_KEY_TESTS}::test_a_text_that_is_not_understood_is_not_guessed",
    ),
    _console(
        "hot keys after Enter pass as the first input",
        _KEYS,
        'self._passed = bytearray(b"\\r")',
        "self._passed = bytearray()",
        f"{_KEY_TESTS}::test_the_begin_of_a_session_counts_as_the_begin_of_a_line",
    ),
    _console(
        "a session is handed out again",
        _STORE,
        "    where t.ended_at is null and t.dispatched_at is null and t.envelope is not null",
        "    where t.ended_at is null and t.envelope is not null",
        f"{_ATTACKS}::test_a_session_is_handed_out_once_and_to_the_holder_of_the_lease_alone",
    ),
    _console(
        "any agent joins a session",
        _STORE,
        "where s.id = c.site_id and s.lease_agent = :agent_id and s.lease_fence = c.lease_fence",
        "where s.id = c.site_id and cast(:agent_id as uuid) is not null and s.lease_fence = c.lease_fence",
        f"{_ATTACKS}::test_only_the_agent_that_was_handed_the_session_joins_it",
    ),
    _console(
        "an agent joins under a later lease",
        _STORE,
        "s.lease_agent = :agent_id and s.lease_fence = c.lease_fence",
        "s.lease_agent = :agent_id and c.lease_fence is not null",
        f"{_ATTACKS}::test_an_agent_that_lost_the_lease_does_not_join",
    ),
    _console(
        "a machine in rescue has a console",
        _RULES,
        "    if guest_state not in GUESTS_OF_TENANTS:",
        "    if guest_state is None:",
        f"{_SERVED}::test_a_machine_that_may_run_a_deploy_system_has_no_console",
    ),
    _console(
        "a session goes on after its BMC was changed",
        "orchestrator/consoles/store.py",
        "b.changed_at > k.opened_at",
        "b.changed_at is null",
        f"{_SERVED}::test_a_change_of_the_bmc_ends_the_session",
    ),
    _console(
        "a session is handed out after its BMC was changed",
        _STORE,
        "b.changed_at > t.opened_at",
        "b.changed_at is null",
        f"{_ATTACKS}::test_a_session_is_not_handed_out_after_its_bmc_was_changed",
    ),
    _console(
        "an agent joins after the BMC was changed",
        _STORE,
        " and b.changed_at <= c.opened_at",
        "",
        f"{_ATTACKS}::test_a_session_is_not_joined_after_its_bmc_was_changed",
    ),
    _console(
        "a session is handed out while a task works on the machine",
        _STORE,
        "      and not exists (select from bmc_tasks b where b.node_id = t.node_id and b.ended_at is null\n"
        "                      and b.kind not in ('look', 'reseal'))\n",
        "",
        f"{_ATTACKS}::test_a_session_does_not_begin_while_a_task_works_on_the_machine",
    ),
    _console(
        "a session goes on while a run is open",
        "orchestrator/consoles/store.py",
        "                       or exists (select from deploy_runs r where r.node_id = k.node_id and r.ended_at is null)\n",
        "",
        f"{_ATTACKS}::test_an_opened_run_ends_a_session_whatever_its_agent_does",
    ),
    _console(
        "a session goes on after its lease",
        "orchestrator/consoles/store.py",
        "s.lease_fence = k.lease_fence and s.lease_until > clock_timestamp())",
        "s.lease_fence >= k.lease_fence)",
        f"{_ATTACKS}::test_a_session_of_a_site_that_lost_the_lease_is_ended",
    ),
    Mutant(
        "metal consoles: a session is signed while a task works on the machine",
        "consoles",
        "orchestrator/consoles/commands.py",
        "if await site_store.is_run_open(tx, node_id):",
        "if False:",
        ("tests/sites/consoles/test_attacks.py::test_no_session_is_signed_while_a_task_works_on_the_machine",),
    ),
]
