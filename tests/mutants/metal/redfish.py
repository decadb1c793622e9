"""Mutants of the Redfish client."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CLIENT = "node_agent/redfish"
TESTS = "tests/redfish"
POWER = f"{TESTS}/test_power.py"
FAULTS = f"{TESTS}/test_faults.py"
WIRE = f"{TESTS}/test_wire.py"
SENT_ONCE = (f"{POWER}::test_a_command_that_took_effect_is_found_out_by_reading_and_not_sent_again",)

MUTANTS: list[Mutant] = [
    Mutant(
        "redfish: a command without an answer counts as failed",
        "agent",
        f"{CLIENT}/wire.py",
        "        except (httpx.TransportError, TimeoutError, AnswerUnreadable) as error:\n            raise OutcomeUnknown(",
        "        except (httpx.TransportError, TimeoutError, AnswerUnreadable) as error:\n            raise Unreachable(",
        (f"{POWER}::test_a_command_without_an_answer_and_an_effect_is_unknown_and_not_failed",),
    ),
    Mutant(
        "redfish: 500 to a command counts as a refusal",
        "agent",
        f"{CLIENT}/wire.py",
        '            raise OutcomeUnknown(f"{method} {path} was answered {answer.reasons()}")',
        '            raise Busy(f"{method} {path} was answered {answer.reasons()}", 1)',
        SENT_ONCE,
    ),
    Mutant(
        "redfish: the environment chooses a proxy",
        "agent",
        f"{CLIENT}/wire.py",
        "            trust_env=False,",
        "            trust_env=True,",
        (f"{WIRE}::test_the_environment_changes_nothing",),
    ),
    Mutant(
        "redfish: any certificate is accepted",
        "agent",
        f"{CLIENT}/tls.py",
        "            if not hmac.compare_digest(seen, wanted):",
        "            if False:",
        (f"{FAULTS}::test_another_certificate_ends_before_the_password_is_sent",),
    ),
    Mutant(
        "redfish: a link leads to another origin",
        "agent",
        f"{CLIENT}/wire.py",
        '                raise AnswerUnreadable(f"the link to {what} leads to another origin")',
        "                pass",
        (f"{WIRE}::test_a_link_to_another_origin_is_not_followed",),
    ),
    Mutant(
        "redfish: an error carries the text of the BMC",
        "agent",
        f"{CLIENT}/documents.py",
        "        if _MESSAGE_ID.fullmatch(name):",
        "        if name:",
        (f"{WIRE}::test_no_secret_is_in_an_error_a_repr_or_a_log_line",),
    ),
    Mutant(
        "redfish: an off that was seen is believed while an on may be queued",
        "agent",
        f"{CLIENT}/power.py",
        "                    if began >= self._certain_from:",
        "                    if True:",
        (f"{POWER}::test_a_queued_on_that_arrives_after_off_was_seen_is_not_missed",),
    ),
    Mutant(
        "redfish: a new process believes the first state that it sees",
        "agent",
        f"{CLIENT}/power.py",
        "(0 if quiet else self._deadlines.queue_seconds)",
        "0",
        (f"{POWER}::test_a_new_process_does_not_believe_off_at_once",),
    ),
    Mutant(
        "redfish: a cancelled command leaves the state certain",
        "agent",
        f"{CLIENT}/power.py",
        "            self._certain_from = before if refused else max(before, held_until)",
        "            self._certain_from = max(before, held_until) if step.sent else before",
        (f"{POWER}::test_a_command_whose_caller_was_cancelled_keeps_the_state_uncertain",),
    ),
    Mutant(
        "redfish: an inserted medium is not read back",
        "agent",
        f"{CLIENT}/media.py",
        "                if medium.inserted is inserted:",
        "                if True:",
        (f"{FAULTS}::test_success_without_effect_is_not_believed",),
    ),
    Mutant(
        "redfish: a lost boot override is not noticed",
        "agent",
        f"{CLIENT}/boot.py",
        "                if seen.target == target and seen.enabled",
        "                if seen.enabled",
        (f"{FAULTS}::test_a_boot_override_with_another_target_is_not_believed",),
    ),
    Mutant(
        "redfish: a password change without an answer is not tried",
        "agent",
        f"{CLIENT}/accounts.py",
        "    except (OutcomeUnknown, CredentialsRefused):\n        pass",
        "    except CredentialsRefused:\n        pass",
        (f"{FAULTS}::test_a_password_change_without_an_answer_is_decided_by_trying",),
    ),
]
