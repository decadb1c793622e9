"""Mutants of wipe certificates of machines: what a deploy system signs, and what is accepted, countersigned and verified."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STATEMENT = "node_agent/wiping/statement.py"
_REPORTS = "node_agent/wiping/machine_reports.py"
_CERTIFICATE = "orchestrator/wipes/certificate.py"
_ACCEPTED = "orchestrator/nodes/deploy_systems/wipe_statements.py"
_WIPING = "node_agent/deploy_system/effects/wiping.py"
_OFFLINE = "tests/wiping/test_machine_certificate.py"
_ISSUED = "tests/sites/renting/test_wipe_certificates.py"
_FORGED = f"{_ISSUED}::test_a_forged_statement_is_dropped_and_the_proven_wipe_counts"
_OF_EVERY_DISK = f"{_ISSUED}::test_a_release_yields_a_certificate_of_every_disk"
_OF_ADOPTED = "tests/sites/adopting/test_releases.py::test_the_certificate_of_an_adopted_machine_claims_no_comparison"
_NAMES_EACH = f"{_OFFLINE}::test_a_statement_about_a_machine_names_each_of_its_disks"


def _mutant(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"certificates of machines: {what}", "wipes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "no deploy system signs",
        "node_agent/deploy_system/loop.py",
        "return self.signer.signed(judged, report)",
        "return report",
        "tests/deploy_system/test_agent.py::test_a_deploy_system_signs_the_wipe_that_releases_an_allocation",
    ),
    _mutant(
        "any deploy system of the node signs",
        _STATEMENT,
        'f"{own}/deploy/{predicate.machine.deploy_epoch}",',
        'uris[0].removeprefix("spiffe://berth.test"),',
        f"{_OFFLINE}::test_another_deploy_system_signs_nothing_for_it",
    ),
    _mutant(
        "the CA of nodes vouches for a deploy system",
        _CERTIFICATE,
        '(trusted.deploy_cas, "deploy system\'s") if is_machine',
        '(trusted.deploy_cas + trusted.node_cas, "deploy system\'s") if is_machine',
        f"{_OFFLINE}::test_only_the_ca_of_deploy_systems_vouches_for_one",
    ),
    _mutant(
        "a disk is left out",
        _STATEMENT,
        "self.machine.disks_found != _count_disks(self.devices)",
        "False",
        f"{_NAMES_EACH}[left-out]",
    ),
    _mutant(
        "a serial counts twice",
        _STATEMENT,
        "return len(serials) if len(serials) == len(devices) else None",
        "return len(devices)",
        f"{_NAMES_EACH}[serial-twice]",
    ),
    _mutant(
        "a statement about a machine needs no findings",
        _CERTIFICATE,
        "if (link.machine is None) != (found.machine is None):",
        "if False:",
        f"{_OFFLINE}::test_what_was_found_on_the_machine_is_countersigned",
    ),
    _mutant(
        "what was not compared is stated",
        _REPORTS,
        "compared = parameters.uefi_variables is not None and not any(",
        "compared = parameters.uefi_variables is not None or any(",
        f"{_OFFLINE}::test_it_claims_no_more_than_the_report",
    ),
    _mutant(
        "a statement with a better method is accepted",
        _ACCEPTED,
        "said.devices != devices_of(found) or",
        "",
        f"{_FORGED}[a-better-method]",
    ),
    _mutant(
        "a statement with another certificate is accepted",
        _ACCEPTED,
        "if opened.certificate != x509.load_pem_x509_certificate(task.certificate_pem.encode()):",
        "issued = x509.load_pem_x509_certificate(task.certificate_pem.encode())\n"
        "        if opened.certificate.serial_number != issued.serial_number:",
        f"{_FORGED}[same-serial-other-key]",
    ),
    _mutant(
        "a statement that is objected to is kept",
        "orchestrator/nodes/commands/deploy_tasks.py",
        "(report if dropped is None else report.model_copy",
        "(report if True else report.model_copy",
        f"{_FORGED}[bad-signature]",
    ),
    _mutant(
        "a statement that is objected to fails the wipe",
        "orchestrator/nodes/commands/deploy_tasks.py",
        "    if objection is None:\n        dropped = None",
        "    if objection is None and report.wipe_statement is not None and machine.objection(task, found, report):\n"
        '        objection = "wipe_statement"\n    if objection is None:\n        dropped = None',
        f"{_FORGED}[bad-signature]",
    ),
    _mutant(
        "the evidence is not as received",
        _ACCEPTED,
        "digest_of(report.result)",
        'digest_of(found.model_dump(mode="json", exclude_none=True))',
        "tests/wiping/test_recorded_report.py::test_a_recorded_report_is_taken_with_its_statement",
    ),
    _mutant(
        "versions of firmware are not as received",
        _REPORTS,
        'one.model_dump(mode="json", exclude_unset=True)',
        'one.model_dump(mode="json", exclude_none=True)',
        "tests/wiping/test_recorded_report.py::test_a_recorded_report_is_taken_with_its_statement",
    ),
    _mutant(
        "the time of the statement is compared with another clock",
        _ACCEPTED,
        "        if opened.certificate != x509",
        "        if abs(said.ended_at.timestamp() - __import__('time').time()) > 60:\n"
        '            return Objection("other_task", "it was not signed now")\n        if opened.certificate != x509',
        f"{_ISSUED}::test_a_deploy_system_whose_time_is_another_costs_no_certificate",
    ),
    _mutant(
        "an inspection of an adopted machine is from before its tenancy",
        "orchestrator/sites/tenancies.py",
        "wipe_of(report, is_baseline=adopted is None)",
        "wipe_of(report)",
        _OF_ADOPTED,
    ),
    _mutant(
        "firmware of an adopted machine is said to be as before",
        "orchestrator/wipes/store.py",
        "a.adoption is null and t.result",
        "t.result",
        _OF_ADOPTED,
    ),
    _mutant(
        "extensions that cannot be read end a verification",
        _STATEMENT,
        "    except UNREADABLE_EXTENSIONS as error:",
        "    except (x509.ExtensionNotFound, ValueError) as error:",
        f"{_OFFLINE}::test_a_certificate_whose_extensions_cannot_be_read_is_refused",
    ),
    _mutant(
        "a stored statement of another release is certified",
        "orchestrator/allocations/commands/cleanup.py",
        "if (opened.predicate.allocation_id, opened.predicate.node_id) != (subject.id, subject.node_id):",
        "if False:",
        f"{_ISSUED}::test_a_statement_of_another_release_that_was_stored_certifies_nothing",
    ),
    _mutant(
        "a statement about another allocation is accepted",
        _ACCEPTED,
        "(said.allocation_id, said.node_id,",
        "(task.released, said.node_id,",
        f"{_FORGED}[other-allocation]",
    ),
    _mutant(
        "what the machine is said to be is not compared",
        _ACCEPTED,
        " or said.machine != machine_of(found, ordered)",
        "",
        f"{_FORGED}[tpm-cleared]",
    ),
    _mutant(
        "the task names no allocation",
        "orchestrator/nodes/deploy_systems/task_store.py",
        "allocation_id=known.released,",
        "allocation_id=None,",
        _OF_EVERY_DISK,
    ),
    _mutant(
        "the findings are not countersigned",
        "orchestrator/wipes/store.py",
        "where r.node_id = :node_id and r.task_id = :task_id",
        "where r.node_id = :node_id and r.task_id <> :task_id",
        f"{_ISSUED}::test_it_says_what_became_of_tpm_variables_and_firmware",
    ),
    _mutant(
        "a start without variables says nothing of them",
        _WIPING,
        "    elif parameters.uefi_variables is not None:",
        "    elif False:",
        "tests/deploy_system/effects/test_wipes.py::test_where_this_start_shows_no_variables_it_is_said_that_nothing_was_compared",
    ),
]
