"""Mutants of wipe certificates: what is signed, refused, chained and proven again after a crash."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STATEMENT = "node_agent/wiping/statement.py"
_CERTIFICATE = "orchestrator/wipes/certificate.py"
_STORE = "orchestrator/wipes/store.py"
_RESULTS = "orchestrator/allocations/commands/task_results.py"
_SIGNED = "tests/wiping/test_statement.py"
_VERIFIED = "tests/wiping/test_certificate.py"
_ISSUED = "tests/wiping/test_issue.py"
_FORGED = f"{_ISSUED}::test_a_forged_statement_is_refused_and_frees_nothing"


def _mutant(name: str, path: str, old: str, new: str, test: str, noun: str = "wipes") -> Mutant:
    return Mutant(f"wipe: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "an Ed25519 signature is not verified", _STATEMENT, "        key.verify(signature, signed)\n", "        pass\n",
        f"{_SIGNED}::test_no_byte_of_what_is_signed_can_be_changed",
    ),
    _mutant(
        "a node signs about another", _STATEMENT, " or not uris[0].endswith(own)", "",
        f"{_SIGNED}::test_a_statement_about_another_node_is_rejected",
    ),
    _mutant(
        "an expired certificate signs", _STATEMENT, "<= predicate.ended_at <= certificate.not_valid_after_utc",
        "<= predicate.ended_at", f"{_SIGNED}::test_the_certificate_was_valid_when_the_release_ended",
    ),
    _mutant(
        "an unproven device is stated", _STATEMENT, "if not all(device.proven for device in self.devices):", "if False:",
        f"{_SIGNED}::test_a_statement_claims_no_more_than_its_devices_prove",
    ),
    _mutant(
        "the level is the highest", _STATEMENT, "return min((device.level", "return max((device.level",
        f"{_SIGNED}::test_a_statement_says_what_was_signed",
    ),
    _mutant(
        "any CA vouches for a node", _CERTIFICATE,
        "if not any(_issued_by(certificate, pem, opened.predicate.ended_at) for pem in cas):", "if False:",
        f"{_VERIFIED}::test_a_node_of_another_ca_is_refused",
    ),
    _mutant(
        "a server's certificate signs", _CERTIFICATE, "if list(usage) != [ExtendedKeyUsageOID.CLIENT_AUTH]:", "if False:",
        f"{_VERIFIED}::test_a_certificate_of_a_server_signs_no_statement",
    ),
    _mutant(
        "a countersignature is not verified", _CERTIFICATE,
        "        key.key().verify(base64.b64decode(signature.sig, validate=True), signed)\n", "",
        f"{_VERIFIED}::test_the_countersignature_is_that_of_a_key_of_the_key_set",
    ),
    _mutant(
        "an expired key countersigns", _CERTIFICATE, "if late or early:", "if early:",
        f"{_VERIFIED}::test_the_key_was_valid_when_it_countersigned",
    ),
    _mutant(
        "parts of two certificates are one", _CERTIFICATE, "if link.statement_sha256 != statement_digest(opened):",
        "if False:", f"{_VERIFIED}::test_parts_of_two_certificates_make_none",
    ),
    _mutant(
        "a certificate is about any allocation", _CERTIFICATE, "if found.allocation_id != allocation_id:", "if False:",
        f"{_VERIFIED}::test_a_certificate_of_another_allocation_is_refused",
    ),
    _mutant(
        "a statement about another device is taken", _CERTIFICATE, '        and devices == evidence.get("devices", [])\n', "",
        f"{_VERIFIED}::test_a_result_with_other_devices_is_not_repeated",
    ),
    _mutant(
        "evidence is not what was signed", _CERTIFICATE,
        "        and statement.subject[0].digest.sha256 == digest_of(evidence)\n", "", f"{_FORGED}[more-evidence]",
    ),
    _mutant(
        "a statement about another task is taken", _RESULTS,
        "if (found.node_id, found.task_id, found.fence) != (node_id, task_id, report.fence):", "if False:",
        f"{_FORGED}[other-task]", "tasks",
    ),
    _mutant(
        "a statement about another allocation is taken", _RESULTS,
        "if task.allocation_id is not None and found.allocation_id != task.allocation_id:", "if False:",
        f"{_FORGED}[other-allocation]", "tasks",
    ),
    _mutant(
        "a revoked certificate signs", _STORE, " and node_id = :node_id and revoked_at is null) as known",
        " and node_id = :node_id) as known", f"{_FORGED}[revoked]",
    ),
    _mutant(
        "a device that is left out is wiped", "orchestrator/allocations/commands/cleanup.py", "        if not unproven:\n",
        "        if True:\n",
        f"{_ISSUED}::test_a_device_that_the_allocation_had_and_the_release_does_not_prove_blocks_the_units", "allocations",
    ),
    _mutant(
        "the chain names no certificate before", _STORE,
        "previous_sha256=None if link.previous is None else link.previous.hex(),", "previous_sha256=None,",
        f"{_ISSUED}::test_certificates_of_a_node_form_a_chain",
    ),
    _mutant(
        "proof is not journaled before it is removed", "node_agent/wiping/proofs.py",
        "            await self._keep(allocation_id, plan.result())\n", "",
        "tests/drivers/test_conformance.py::test_survives_kills[survives_kills_of_a_release-sandbox]", "agent",
    ),
    _mutant(
        "an old proof is about a new disk", "node_agent/journal_state.py",
        "            self.wiped.pop(body.allocation_id or UUID(int=0), None)\n", "            pass\n",
        "tests/node_agent/test_at_most_once.py::test_a_release_ordered_again_proves_what_an_earlier_one_wiped", "agent",
    ),
    _mutant(
        "proofs are lost in a compaction", "node_agent/journal_state.py", "        yield from self.wiped.values()\n", "",
        "tests/node_agent/test_journal_state.py::test_a_snapshot_has_the_proofs_of_the_newest_allocations", "agent",
    ),
]  # fmt: skip
