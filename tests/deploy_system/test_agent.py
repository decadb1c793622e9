"""The agent of a deploy system against the real control plane: one life, a second start, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from cryptography import x509

from node_agent.key_set import read_envelope, read_unverified
from node_agent.protocol import TaskType
from node_agent.wiping.statement import StatementEnvelope, open_statement
from node_agent.wire.deploy_medium import MEDIUM_BYTES_MAX
from orchestrator.nodes.commands.deploy_tasks import Advanced
from tests.deploy_system.ordering import claim, order
from tests.deploy_system.stage import SMBIOS, Machine, Stage
from tests.deploy_system.starting import Started, machine_of
from tests.support.waiting import wait_for


def state_is(stage: Stage, machine: Machine, state: str) -> bool:
    """Whether the permission has this state."""
    return bool(stage.shown(machine.medium.node_id)["state"] == state)


def test_a_deploy_system_enrols_inspects_reports_and_powers_off(
    stage: Stage, machines: list[Started], tmp_path: Path
) -> None:
    node = stage.node()
    permitted = stage.permit(node)
    stage.inspect(node)
    machine = machine_of(stage, machines, tmp_path, permitted.medium)
    machine.start()
    wait_for(lambda: stage.advance(node) is Advanced.ISSUED, "the hello")
    status, console = machine.ended()
    assert status == 0, console
    assert machine.performed == ["MetalInspectParameters"]
    assert stage.advance(node) is Advanced.COMPLETED
    assert stage.shown(node)["machine"]["smbios_uuid"] == str(SMBIOS)
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"medium.json", "performed", "product_uuid", "address"}, "no key and no certificate"


_RELEASING = """
insert into deploy_runs (node_id, site_id, kind, step, medium, requested_by, deploy_epoch, bmc_task_id, deploy_task_id, task_id,
                         allocation_id, claim_id, waits_for, waits_since, waits_until)
select t.node_id, gen_random_uuid(), 'wipe', 'work', '{}', 'worker:1', t.deploy_epoch, gen_random_uuid(), t.id, gen_random_uuid(),
       %s, 1, 'deploy_system', clock_timestamp(), clock_timestamp() + interval '1 hour'
from deploy_tasks t where t.node_id = %s and t.ended_at is null
"""


def test_a_deploy_system_signs_the_wipe_that_releases_an_allocation(
    stage: Stage, machines: list[Started], tmp_path: Path
) -> None:
    node, allocation = stage.node(), uuid4()
    permitted = stage.permit(node)
    assert order(stage, node, TaskType.METAL_WIPE).status == 200
    connection = stage.fleet.connection
    connection.execute(_RELEASING, (allocation, node))
    machine = machine_of(stage, machines, tmp_path, permitted.medium)
    machine.start()
    wait_for(lambda: stage.advance(node) is Advanced.ISSUED, "the hello")
    wait_for(lambda: stage.advance(node) is Advanced.COMPLETED, "the report")
    connection.execute("delete from deploy_runs where node_id = %s", (node,))
    stage.permit(node)
    machine.ended()
    row = connection.execute(
        "select wipe_statement from deploy_systems where node_id = %s and wipe_statement is not null", (node,)
    ).fetchone()
    assert row is not None, "the control plane has taken it"
    opened = open_statement(StatementEnvelope.model_validate(row[0]))
    assert (opened.predicate.allocation_id, opened.predicate.node_id) == (allocation, node)
    key_set = read_unverified(read_envelope(stage.files.key_set.read_bytes()))
    (authority,) = key_set.deploy_cas
    opened.certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.encode()))


def test_a_medium_that_another_start_has_used_does_nothing_and_says_why(
    stage: Stage, machines: list[Started], tmp_path: Path
) -> None:
    permitted = stage.permit(stage.node())
    assert permitted.enrol().status_code == 200
    machine = machine_of(stage, machines, tmp_path, permitted.medium)
    machine.start()
    status, console = machine.ended()
    assert status == 1
    assert "the control plane refuses this deploy system, and nothing was done" in console
    assert "the token was used with another key" in console


@pytest.mark.full
def test_a_second_start_with_the_same_medium_does_nothing_and_says_why(
    stage: Stage, machines: list[Started], tmp_path: Path
) -> None:
    """SIGKILL in the middle of a task: the key is gone, and with it what the token was worth."""
    node = stage.node()
    permitted = stage.permit(node)
    stage.inspect(node)
    machine = machine_of(stage, machines, tmp_path, permitted.medium)
    (tmp_path / "hold").touch()
    machine.start(as_process=True)
    wait_for(lambda: stage.advance(node) is Advanced.ISSUED, "the hello")
    wait_for(lambda: machine.performed, "the task")
    machine.kill()
    (tmp_path / "hold").unlink()
    machine.start(as_process=True)
    status, console = machine.ended()
    assert status == 1
    assert "the control plane refuses this deploy system, and nothing was done" in console
    assert "the token was used with another key" in console
    assert len(machine.performed) == 1


def test_a_task_that_fails_is_reported_by_its_code(stage: Stage, machines: list[Started], tmp_path: Path) -> None:
    node = stage.node()
    permitted = stage.permit(node)
    number = claim(stage, node, "maintenance")
    assert order(stage, node, TaskType.METAL_DEPLOY, number).status == 200
    machine = machine_of(stage, machines, tmp_path, permitted.medium)
    machine.start()
    wait_for(lambda: stage.advance(node) is Advanced.ISSUED, "the hello")
    wait_for(lambda: stage.advance(node) is Advanced.FAILED, "the report")
    assert stage.listed(node)["failure"] == "read_back_mismatch: read_back: byte 7; replace the disk"
    stage.permit(node)
    status, console = machine.ended()
    assert status == 1, "superseded while it waits"
    assert "may not act any more" in console


def test_a_report_after_a_newer_permission_ends_the_older_deploy_system(
    stage: Stage, machines: list[Started], tmp_path: Path
) -> None:
    node = stage.node()
    permitted = stage.permit(node)
    stage.inspect(node)
    machine = machine_of(stage, machines, tmp_path, permitted.medium)
    (tmp_path / "hold").touch()
    machine.start()
    wait_for(lambda: stage.advance(node) is Advanced.ISSUED, "the hello")
    wait_for(lambda: machine.performed, "the task")
    stage.permit(node)
    (tmp_path / "hold").unlink()
    status, console = machine.ended()
    assert status == 1
    assert "superseded" in console
    assert stage.listed(node)["outcome"] == "not_run"


@contextmanager
def certificate_of_seconds(stage: Stage, node: UUID, seconds: int) -> Iterator[None]:
    """In the block the node's certificate is shorter than any that can be asked for; the constraint is back after it."""
    sql, named = stage.fleet.connection, "deploy_certificate_is_short"
    kept = sql.execute("select pg_get_constraintdef(oid) from pg_constraint where conname = %s", (named,)).fetchone()
    assert kept is not None
    sql.execute(f"alter table deploy_systems drop constraint {named}")
    sql.execute("update deploy_systems set certificate_seconds = %s where node_id = %s", (seconds, node))
    try:
        yield
    finally:
        sql.execute("update deploy_systems set certificate_seconds = 60 where node_id = %s", (node,))
        sql.execute(f"alter table deploy_systems add constraint {named} {kept[0]}")


def test_a_deploy_system_ends_with_its_certificate(stage: Stage, machines: list[Started], tmp_path: Path) -> None:
    """Status 0 without a task that orders to power off has no other cause; a refusal would be status 1."""
    node = stage.node()
    machine = machine_of(stage, machines, tmp_path, stage.permit(node, certificate_seconds=60).medium)
    with certificate_of_seconds(stage, node, 4):
        machine.start()
        assert machine.ended() == (0, "")
    assert machine.performed == []
    assert stage.shown(node)["hello_at"] is not None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the configuration is not JSON"),
        (b'{"berth-config-placeholder": 1}' + b" " * 100, "it was not made for one machine"),
        (b"x" * (MEDIUM_BYTES_MAX + 100), "at most 8192 are read"),
    ],
)
def test_a_medium_without_a_configuration_is_named(
    stage: Stage, machines: list[Started], tmp_path: Path, content: bytes, sentence: str
) -> None:
    machine = machine_of(stage, machines, tmp_path, content)
    machine.start()
    status, console = machine.ended()
    assert (status, sentence in console) == (1, True), console


def test_another_root_or_an_older_key_set_is_refused(stage: Stage, machines: list[Started], tmp_path: Path) -> None:
    node = stage.node()
    for name, change in (("root", {}), ("serial", {"key_set_serial": 10_000})):
        (tmp_path / name).mkdir()
        medium = stage.permit(node).medium.model_copy(update=change)
        machine = machine_of(stage, machines, tmp_path / name, medium)
        if name == "root":
            machine.root_keys = stage.files.task_verifying_keys
        machine.start()
        status, console = machine.ended()
        assert status == 1
        assert ("the control plane's key set is refused" if name == "root" else "the medium requires 10000") in console


def test_a_listener_of_another_ca_gets_no_token(stage: Stage, machines: list[Started], tmp_path: Path) -> None:
    medium = stage.permit(stage.node()).medium
    wrong = medium.model_copy(update={"ca_pem": stage.files.deploy_ca_certificate.read_text()})
    machine = machine_of(stage, machines, tmp_path, wrong)
    machine.start()
    status, console = machine.ended()
    assert status == 1
    assert "CERTIFICATE_VERIFY_FAILED" in console
    assert stage.facts(medium.node_id)[0][2] is None, "the token was not used"


def test_the_deploy_system_imports_no_driver_and_no_settings() -> None:
    """It runs in 384 MiB, from an initramfs with few packages."""
    program = (
        "import json, sys; import node_agent.__main__, node_agent.deploy_system.process;"
        " from node_agent.deploy_system.performing import work_of_machine; work_of_machine('');"
        " print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"pydantic_settings", "libvirt", "asyncssh", "uvicorn", "fastapi", "sqlalchemy", "orchestrator"}
    assert not {
        name for name in loaded if name.startswith(("node_agent.drivers", "node_agent.settings", "node_agent.agent"))
    }
