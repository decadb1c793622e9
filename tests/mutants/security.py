"""Mutants of the guards against hostile text, frames and readers of secrets."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TERMINALS = "tests/security/test_terminals.py"
STORED = "tests/security/test_stored_secrets.py"

MUTANTS = [
    Mutant(
        "pings and pongs are not counted",
        "security",
        "orchestrator/edge/socket_listener.py",
        "if self._control_frames > self._control_frames_max and not self.close_sent:",
        "if False:",
        ("tests/security/test_connections.py::test_a_socket_that_sends_only_pings_or_pongs_is_closed",),
    ),
    Mutant(
        "a name may contain marks of direction and C1 controls",
        "security",
        "orchestrator/http/fields.py",
        r'UNSHOWN = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"',
        r'UNSHOWN = r"\x7f"',
        (f"{TERMINALS}::test_no_text_of_a_request_may_contain_it",),
    ),
    Mutant(
        "the command prints text as it came",
        "security",
        "berth/cli/terminal.py",
        "    if text.isprintable():\n",
        "    if text:\n",
        (f"{TERMINALS}::test_what_a_server_sends_is_shown_as_escapes",),
    ),
    Mutant(
        "a log line holds text as it came",
        "security",
        "berth/process/logs.py",
        "    if text.isprintable():\n",
        "    if text:\n",
        (f"{TERMINALS}::test_a_log_line_has_it_as_escapes",),
    ),
    Mutant(
        "an operation shows another caller the sealed text",
        "security",
        "orchestrator/operations/endpoints.py",
        "                    del result[member]\n",
        "                    pass\n",
        (f"{STORED}::test_another_key_of_the_same_tenant_does_not_get_it",),
    ),
    Mutant(
        "a response with a secret may be cached",
        "security",
        "orchestrator/http/writes.py",
        '    response.headers["cache-control"] = "no-store"\n',
        "",
        (f"{STORED}::test_its_owner_gets_it_on_every_route",),
    ),
]
