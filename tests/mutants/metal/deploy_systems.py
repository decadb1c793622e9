"""Mutants of deploy systems: which token, machine, chain and claim counts, and what a report shows."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = "orchestrator/nodes/deploy_systems/rules.py"
_STORE = "orchestrator/nodes/deploy_systems/store.py"
_TASKS = "orchestrator/nodes/deploy_systems/task_store.py"
_IDENTITY = "orchestrator/nodes/deploy_systems/identity.py"
_COMMANDS = "orchestrator/nodes/commands/deploy_tasks.py"
_ADMISSION = "node_agent/deploy_system/admission.py"
_LOOP = "node_agent/deploy_system/loop.py"
_OF_ENROLMENT = "tests/deploy_system/test_enrolment.py"
_OF_TASKS = "tests/deploy_system/test_tasks.py"
_OF_CRASHES = "tests/deploy_system/test_crashes.py"
_OF_AGENT = "tests/deploy_system/test_agent.py"


def _mutant(name: str, path: str, old: str, new: str, test: str, noun: str = "nodes") -> Mutant:
    return Mutant(f"deploy system: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a used token is good for another key",
        _RULES,
        "permission.used_at is not None and presented.key_sha256 != permission.key_sha256",
        "False",
        f"{_OF_ENROLMENT}::test_a_used_token_is_worthless_to_another_key",
    ),
    _mutant(
        "a token is good for a machine without the port",
        _RULES,
        " or not set(permission.macs) <= set(presented.macs)",
        "",
        f"{_OF_ENROLMENT}::test_a_token_of_another_machine_or_epoch_changes_nothing",
    ),
    _mutant(
        "a token is good for another deploy epoch",
        _RULES,
        "if presented.deploy_epoch != permission.deploy_epoch:",
        "if False:",
        f"{_OF_ENROLMENT}::test_a_token_of_another_machine_or_epoch_changes_nothing",
    ),
    _mutant(
        "a token does not expire",
        _RULES,
        "if permission.state is PermissionState.EXPIRED:",
        "if False:",
        "tests/deploy_system/test_rules.py::test_a_row_accepts_or_refuses_a_machine",
    ),
    _mutant(
        "a claim of a tenant is no obstacle",
        _RULES,
        'if self.orphans or others - (set() if writing else {"maintenance"}):',
        "if self.orphans:",
        f"{_OF_ENROLMENT}::test_nothing_is_permitted_or_enrolled_on_a_tenants_machine",
    ),
    _mutant(
        "a node in service is no obstacle",
        _RULES,
        "self.named is None and self.state not in WITHOUT_CLAIM",
        "False",
        f"{_OF_ENROLMENT}::test_a_node_in_service_or_retired_is_refused",
    ),
    _mutant(
        "an ended permission counts",
        _STORE,
        "        if self.ended_by is not None:\n            return self.ended_by\n",
        "",
        f"{_OF_ENROLMENT}::test_a_newer_permission_ends_the_older_one_at_once",
    ),
    _mutant(
        "a certificate counts after its end",
        _STORE,
        "        if self.is_over:\n",
        "        if False:\n",
        f"{_OF_ENROLMENT}::test_a_certificate_ends_with_its_time",
    ),
    _mutant(
        "the chain of a certificate does not matter",
        _IDENTITY,
        "if path.startswith(DEPLOY_PATHS) != bool(state.get(DEPLOY_CHAIN)):",
        "if False:",
        f"{_OF_ENROLMENT}::test_certificates_of_one_kind_open_no_paths_of_another",
    ),
    _mutant(
        "the agent of the node leases tasks of its deploy system",
        "orchestrator/tasks/store/dispatch.py",
        "where t.state = 'queued' and t.deploy_epoch is null and",
        "where t.state = 'queued' and",
        f"{_OF_TASKS}::test_the_agent_of_the_node_neither_leases_nor_reports_a_task_of_its_deploy_system",
    ),
    _mutant(
        "a task of another deploy system is found",
        _TASKS,
        "where k.id = :id and k.node_id = :node_id and k.deploy_epoch = :deploy_epoch for",
        "where k.id = :id for",
        f"{_OF_TASKS}::test_a_task_of_another_deploy_system_cannot_be_reported",
    ),
    _mutant(
        "claims are not evaluated again when a task is signed",
        _COMMANDS,
        "        if obstacle is not None:\n",
        "        if False:\n",
        f"{_OF_TASKS}::test_a_task_that_writes_is_not_signed_once_another_claim_is_there",
    ),
    _mutant(
        "a wipe completes with content on a disk",
        _COMMANDS,
        "not all(disk.proven for disk in found.disks)",
        "False",
        f"{_OF_TASKS}::test_a_wipe_completes_only_with_every_disk_of_its_order_read_back",
    ),
    _mutant(
        "a wipe that proves too little is refused, and its deploy system ends without a report",
        _COMMANDS,
        "    if task.type is not TaskType.METAL_WIPE:\n        raise",
        "    if True:\n        raise",
        f"{_OF_TASKS}::test_a_wipe_completes_only_with_every_disk_of_its_order_read_back",
    ),
    _mutant(
        "an older key set is used",
        _LOOP,
        "if found.serial < medium.key_set_serial:",
        "if False:",
        f"{_OF_AGENT}::test_another_root_or_an_older_key_set_is_refused",
        "agent",
    ),
    _mutant(
        "a task of another deploy epoch is performed",
        _ADMISSION,
        "if parameters.deploy_epoch != trust.deploy_epoch:",
        "if False:",
        "tests/deploy_system/test_admission.py",
        "agent",
    ),
    _mutant(
        "a long list of wrong addresses is refused error by error",
        "node_agent/wire/deploy_enrolment.py",
        "max_length=MACS_MAX), FailFast()]",
        "max_length=MACS_MAX)]",
        f"{_OF_ENROLMENT}::test_a_list_of_wrong_addresses_is_refused_at_its_first",
        "agent",
    ),
    _mutant(
        "the same key does not get its certificate again",
        "orchestrator/nodes/commands/deploy_enrolment.py",
        "    if permission.used_at is not None:\n        return permission\n",
        "",
        f"{_OF_CRASHES}::test_a_token_whose_answer_was_lost_gets_its_machine_one_certificate",
    ),
    _mutant(
        "an issuer leaves what the one before it did not store",
        _STORE,
        "where used_at is not null and serial is null and refusal is null and ended_at is null order by id",
        "where used_at > clock_timestamp() - interval '0.01 s' and serial is null order by id",
        f"{_OF_CRASHES}::test_the_next_issuer_signs_what_the_one_before_it_left",
    ),
    _mutant(
        "a report that is sent again is superseded",
        _COMMANDS,
        "if task.state in (TaskState.COMPLETED, TaskState.FAILED) and task.fence == report.fence:",
        "if False:",
        f"{_OF_CRASHES}::test_a_report_whose_answer_was_lost_counts_once",
    ),
]
