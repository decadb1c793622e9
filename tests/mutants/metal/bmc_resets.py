"""Mutants of resets of BMCs: sent once, proven by what answers afterwards, and refused while a run is open."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RESTART = "node_agent/redfish/restart.py"
_RESETS = "node_agent/site/resets.py"
_OF_CLIENT = "tests/redfish/test_restart.py"
_OF_SITES = "tests/sites/resets/test_resets.py"
_BELIEVED = f"{_OF_SITES}::test_what_was_not_read_back_is_not_believed"
_REQUESTED = f"{_OF_SITES}::test_a_reset_is_requested_once_and_refused_while_something_works_through_the_bmc"


def _mutant(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"BMC resets: {what}", "nodes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a broken network is a restart", _RESTART, "return was != is_now if was and is_now else gone", "return gone",
        f"{_OF_CLIENT}::test_connections_that_break_are_no_restart_of_a_bmc_that_states_its_last_one",
    ),
    _mutant(
        "any answer is a restart", _RESTART, "return was != is_now if was and is_now else gone", "return True",
        f"{_OF_CLIENT}::test_a_reset_without_effect_is_not_repeated_and_not_believed",
    ),
    _mutant(
        "only a stated time is a restart", _RESTART, "return was != is_now if was and is_now else gone", "return was != is_now",
        f"{_OF_CLIENT}::test_a_restart_is_seen_whatever_the_command_was_answered",
    ),
    _mutant(
        "another certificate is waited for", _RESTART, "        except CertificateChanged:\n            raise\n", "",
        f"{_OF_CLIENT}::test_another_certificate_after_the_reset_gets_no_credentials",
    ),
    _mutant(
        "a BMC that is gone is only without effect", _RESTART, "    if gone and not is_back:\n", "    if False:\n",
        f"{_OF_CLIENT}::test_a_bmc_that_does_not_come_back_is_said_to_be_gone",
    ),
    _mutant(
        "logins are tried until the account is locked", _RESTART, "            if refused >= LOGINS_REFUSED_MAX:\n",
        "            if False:\n", f"{_OF_CLIENT}::test_a_bmc_that_refuses_the_password_afterwards_is_asked_twice",
    ),
    _mutant(
        "the first refused login ends the reset", _RESTART, "LOGINS_REFUSED_MAX: Final = 2", "LOGINS_REFUSED_MAX: Final = 1",
        f"{_OF_CLIENT}::test_a_bmc_that_refuses_a_login_while_it_starts_is_waited_for",
    ),
    _mutant(
        "a kind that is not listed is sent", _RESTART, "    check_allowed(name, allowed, \"the manager's reset type\")\n", "",
        f"{_OF_CLIENT}::test_only_a_restart_that_the_bmc_lists_is_sent",
    ),
    _mutant(
        "another machine answers", _RESETS, "    if before.uuid and after.uuid != before.uuid:\n", "    if False:\n", _BELIEVED
    ),
    _mutant(
        "a machine that was switched off is not noticed", _RESETS,
        "    if before.power_state in _STEADY and after.power_state is not before.power_state:\n", "    if False:\n", _BELIEVED,
    ),
    _mutant(
        "a reset without a description completes", "orchestrator/sites/rules.py",
        "DESCRIBED: Final = frozenset({BmcTaskKind.LOOK, BmcTaskKind.RESET_BMC})",
        "DESCRIBED: Final = frozenset({BmcTaskKind.LOOK})",
        f"{_OF_SITES}::test_a_report_without_a_description_completes_nothing",
    ),
    _mutant(
        "a BMC is reset under a deploy system", "orchestrator/sites/commands/bmcs.py",
        "        elif kind is BmcTaskKind.RESET_BMC:\n            await require_no_deploy_task(tx, node_id)\n", "", _REQUESTED,
    ),
    _mutant(
        "the end of a reset has no event", "orchestrator/sites/bmc_events.py", "    if task.kind is BmcTaskKind.RESET_BMC:\n",
        "    if False:\n", f"{_OF_SITES}::test_a_bmc_is_reset_and_its_machine_goes_on",
    ),
]  # fmt: skip
