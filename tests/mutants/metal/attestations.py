"""Mutants of attestations on demand: what proves, what is compared, which nodes are asked, and when an attestation ends."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = "orchestrator/nodes/attestation/rules.py"
_STRUCTURES = "orchestrator/nodes/attestation/structures.py"
_COMMANDS = "orchestrator/sites/commands/attestations.py"
_STORE = "orchestrator/nodes/attestation/store.py"
_OF_RULES = "tests/nodes/attestations/test_rules.py"
_OF_NODES = "tests/nodes/attestations/test_attestations.py"
_OF_SITES = "tests/sites/attestations/test_machines.py"
_OF_AGENT = "tests/node_agent/attestation/test_attesting.py"
_ATTACKS = f"{_OF_RULES}::test_an_attack_is_refused_and_proves_no_pcrs"
_REFUSED = f"{_OF_NODES}::test_a_node_that_cannot_answer_is_refused_and_nothing_is_stored"
_MACHINES = f"{_OF_SITES}::test_a_machine_in_use_or_unknown_is_refused"
_ENDS = f"{_OF_NODES}::test_what_is_not_answered_ends_by_its_deadline"
_QUARANTINE = f"{_OF_NODES}::test_a_setting_takes_the_slots_of_a_failed_node_into_quarantine"


def _mutant(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"attestations: {what}", "nodes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "another TPM signs", _RULES, "        require_signature(expected.key, quote_bytes, signature)\n", "", _ATTACKS
    ),
    _mutant(
        "an old quote counts", _RULES, "if not hmac.compare_digest(quote.extra_data, nonce_data(nonce)):", "if False:", _ATTACKS
    ),
    _mutant("other PCRs are quoted", _RULES, "if not quote.selects_first(PCR_COUNT):", "if False:", _ATTACKS),
    _mutant(
        "another bank is quoted", _STRUCTURES, "return algorithm == _ALG_SHA256 and int", "return int", _ATTACKS
    ),
    _mutant(
        "a second bank is quoted", _STRUCTURES,
        "        if len(self.selections) != 1:\n            return False\n        ((algorithm, bitmap),) = self.selections\n",
        "        if not self.selections:\n            return False\n        algorithm, bitmap = self.selections[0]\n", _ATTACKS,
    ),
    _mutant(
        "PCRs beside the quote count", _RULES, "if not hmac.compare_digest(digest, quote.pcr_digest):", "if False:", _ATTACKS
    ),
    _mutant(
        "accepted PCRs are not compared", _RULES, "    if changed:\n", "    if False:\n",
        f"{_OF_NODES}::test_accepted_pcrs_are_compared_and_others_can_be_accepted",
    ),
    _mutant(
        "firmware is not compared", _RULES, "    if objections:\n", "    if False:\n",
        f"{_OF_NODES}::test_firmware_is_compared_with_the_list_of_the_model",
    ),
    _mutant(
        "an answer after the deadline counts", _RULES, "    if is_late:\n", "    if False:\n",
        f"{_OF_NODES}::test_an_answer_after_the_deadline_does_not_count",
    ),
    _mutant(
        "the moment of the answer is not evaluated", _COMMANDS,
        "known.task_finished_at is not None and known.task_finished_at > known.waits_until", "False",
        f"{_OF_NODES}::test_an_answer_after_the_deadline_does_not_count",
    ),
    _mutant(
        "each nonce is the same", _STORE, "return secrets.token_bytes(NONCE_BYTES)", "return bytes(NONCE_BYTES)",
        f"{_OF_NODES}::test_a_node_proves_its_tpm_for_a_nonce_that_is_new_each_time",
    ),
    _mutant(
        "a second request makes a second nonce", _COMMANDS,
        "        if await store.read_open(tx, node_id) is None:\n", "        if True:\n",
        f"{_OF_NODES}::test_of_two_requests_at_once_one_nonce_is_made",
    ),
    _mutant(
        "a node without a TPM is asked", _COMMANDS, "if (await read_tpm(tx, node_id)).ak_public is None:", "if False:", _REFUSED
    ),
    _mutant("an offline node is asked", _COMMANDS, "    if not facts.reachable:\n", "    if False:\n", _REFUSED),
    _mutant(
        "an earlier agent is asked", _COMMANDS, "    if not facts.supported:\n", "    if False:\n", _REFUSED
    ),
    _mutant(
        "a tenant's machine is switched off", _COMMANDS, "    await require_unused(tx, node_id, None, writing=False)\n", "",
        _MACHINES
    ),
    _mutant("a machine with an open run is asked", _COMMANDS, "    await require_no_run(tx, node_id)\n", "", _MACHINES),
    _mutant(
        "a run that failed proves", _COMMANDS, "    if run.outcome is not RunOutcome.COMPLETED:\n", "    if False:\n",
        f"{_OF_SITES}::test_a_run_that_fails_or_is_stopped_ends_the_attestation",
    ),
    _mutant(
        "an attestation waits for its run for ever", _COMMANDS,
        "run is not None and run.outcome is None and known.waits_until > facts.clock", "run is not None and run.outcome is None",
        f"{_OF_SITES}::test_an_attestation_ends_by_its_deadline_although_its_run_goes_on",
    ),
    _mutant(
        "an attestation waits for its node for ever", _COMMANDS, "    if known.waits_until <= facts.clock:\n",
        "    if False:\n", _ENDS
    ),
    _mutant(
        "a machine is not compared with its inspection", "orchestrator/sites/firmware.py",
        "    return objections(before, after, accepted), [\"inspection\"",
        "    return objections(Reading(None, None), after, accepted), [\"inspection\"",
        f"{_OF_SITES}::test_firmware_that_changed_since_the_inspection_fails",
    ),
    _mutant(
        "a failed node stays in service although it is set so", _COMMANDS,
        "if on_failure is OnFailure.REPORT or judged.code not in SUSPECT:", "if True:", _QUARANTINE,
    ),
    _mutant(
        "no answer takes a node out of service", _COMMANDS,
        "if on_failure is OnFailure.REPORT or judged.code not in SUSPECT:", "if on_failure is OnFailure.REPORT:", _ENDS,
    ),
    _mutant(
        "a failed node is taken out of service unasked", _COMMANDS,
        "if on_failure is OnFailure.REPORT or judged.code not in SUSPECT:", "if judged.code not in SUSPECT:",
        f"{_OF_NODES}::test_the_answer_of_an_earlier_nonce_or_of_another_tpm_fails",
    ),
    _mutant(
        "PCRs that were not proven are accepted", _COMMANDS, "        if found.pcrs is None:\n", "        if False:\n",
        f"{_OF_NODES}::test_accepted_pcrs_are_compared_and_others_can_be_accepted",
    ),
    _mutant(
        "a killed agent leaves its session", "node_agent/agent.py", "        remove_sessions(store.directory)\n", "",
        f"{_OF_AGENT}::test_an_agent_that_is_killed_meanwhile_reports_that_and_answers_the_next",
    ),
    _mutant(
        "a TPM that hangs is waited for", "node_agent/attestation/attesting.py", "asyncio.timeout(seconds_max)",
        "asyncio.timeout(None)", f"{_OF_AGENT}::test_a_tpm_that_hangs_is_given_up_before_the_task_ends",
    ),
    _mutant(
        "an event log of any length is read", "node_agent/attestation/attesting.py",
        "    if len(content) > EVENT_LOG_BYTES_MAX:\n", "    if False:\n",
        f"{_OF_AGENT}::test_the_event_log_is_digested_within_a_bound",
    ),
]  # fmt: skip
