"""`berth site` and `berth node bmc` against a real API: success, bad input, repetition, and what does not exist."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from uuid import UUID

import pytest

from berth.cli.main import app
from berth.process.sealed_passwords import Purpose, fingerprint, read_key, unseal
from tests.api.calling import fresh, new_place
from tests.client.deployment import Deployment
from tests.support.shell import ID, RUNNER, Shell, bare, deployment

__all__ = ["bare", "deployment"]

PASSWORD = "a-password-of-a-BMC"
PIN = "ab" * 32
WHERE = f"--url https://192.0.2.7 --username root --certificate-sha256 {PIN}"


@pytest.fixture
def shell(deployment: Deployment) -> Shell:
    return Shell(deployment.address, deployment.admin.key)


@pytest.fixture
def site(shell: Shell, tmp_path: Path) -> str:
    """The name of a new site, whose private recovery key is in recovery.pem."""
    name = fresh("rack")
    made = shell.json(f"site new-recovery-key {tmp_path / 'recovery.pem'}")
    shell.json(f"site create {name} --recovery-key {made['public_key']}")
    return name


@pytest.fixture
def node(deployment: Deployment) -> str:
    return str(new_place(deployment.admin, deployment.database).node["name"])


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return path


def end_tasks(deployment: Deployment) -> None:
    deployment.database.execute(
        "update bmc_tasks set outcome = 'failed', failure = 'no_agent: test', ended_at = clock_timestamp(), waits_for = null,"
        " waits_since = null, waits_until = null where ended_at is null"
    )


def test_a_recovery_key_is_written_once_for_its_owner_alone(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    done = shell.run(f"site new-recovery-key {path}")
    public = read_key(path).public_key().public_bytes_raw()
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == public.hex()
    assert fingerprint(public) in done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    shell.refused(f"site new-recovery-key {path}", "usage", 2)
    assert path.read_bytes() == before
    shell.refused(f"site new-recovery-key {tmp_path / 'absent' / 'key.pem'}", "usage", 2)


def test_a_site_from_its_creation_to_its_removal(shell: Shell, site: str) -> None:
    shown = shell.json(f"site show {site}")
    assert shell.json(f"site show {shown['id']}") == shown
    assert site in [one["name"] for one in shell.json("site list")["items"]]
    shell.refused(f"site create {site} --recovery-key {PIN}", "already_exists")
    shell.refused(f"site create Rack --recovery-key {PIN}", "invalid")
    shell.refused(f"site create {fresh('rack')} --recovery-key 00", "invalid")
    first = shell.json(f"site enrol-agent {site} host-a --hardware-id hw-1 --valid-seconds 60")
    again = shell.json(f"site enrol-agent {site} host-a")
    assert first["agent_id"] == again["agent_id"]
    assert first["token"] != again["token"]
    shell.refused(f"site enrol-agent {site} Host", "invalid")
    assert shell.run(f"site enrol-agent {site} host-a --valid-seconds 0").exit_code == 2
    assert "host-a (registered, no key)" in shell.run(f"site show {site}").stdout
    assert "site_in_use" in shell.run(f"site remove {site} --output json").stdout
    shell.refused(f"site revoke-agent {site} host-b --reason gone", "usage", 2)
    for _ in range(2):
        assert shell.json(f"site revoke-agent {site} host-a --reason gone")["state"] == "retired"
    assert shell.run(f"site remove {site}").exit_code == 0
    shell.refused(f"site remove {site}", "not_found")


@pytest.mark.quick("show", "set")
@pytest.mark.parametrize(
    "line",
    [
        "site show", "site remove", "site enrol-agent {} a", "site revoke-agent {} a --reason r", "node bmc list --site",
        f"node bmc set {ID} {WHERE} --site",
    ],
    ids=["show", "remove", "enrol", "revoke", "list", "set"],
)  # fmt: skip
def test_an_unknown_site_is_not_found(shell: Shell, line: str) -> None:
    for name in ("absent", ID):
        assert name in shell.refused(line.format(name) if "{}" in line else f"{line} {name}", "not_found")


@pytest.mark.quick("look")
@pytest.mark.parametrize("verb", ["show", "remove", "look", "rotate", "reseal"])
def test_a_node_without_a_bmc_and_no_node_are_not_found(shell: Shell, node: str, verb: str) -> None:
    assert "BMC" in shell.refused(f"node bmc {verb} {node}", "not_found")
    assert "absent" in shell.refused(f"node bmc {verb} absent", "not_found")
    assert "BMC" in shell.refused(f"node power {node} on", "not_found")


def test_a_bmc_from_its_first_password_to_its_removal(
    shell: Shell, deployment: Deployment, site: str, node: str, password_file: Path, tmp_path: Path
) -> None:
    line = f"node bmc set {node} --site {site} {WHERE}"
    shell.refused(line, "invalid")
    made = shell.json(f"{line} --password-file {password_file}")
    shown = shell.json(f"site show {site}")
    assert (made["generation"], made["recipients"]) == (1, [shown["id"]])
    row = deployment.database.execute(
        "select sealed from bmc_credentials where node_id = %s", (made["node_id"],)
    ).fetchone()
    purpose = Purpose(UUID(shown["id"]), UUID(made["node_id"]), 1)
    assert row is not None
    assert unseal(row[0], purpose, UUID(shown["id"]), read_key(tmp_path / "recovery.pem")) == PASSWORD
    colons = ":".join(["CD"] * 32)
    repinned = shell.json(
        f"node bmc set {node} --site {site} --url https://b --username u --certificate-sha256 {colons}"
    )
    assert (repinned["generation"], repinned["certificate_sha256"]) == (1, "cd" * 32)
    again = shell.run(f"{line} --password-file {password_file} --recovery-key {shown['recovery_key']}")
    assert PASSWORD not in again.output
    assert shell.json(f"node bmc show {node}")["generation"] == 2
    assert [one["node_id"] for one in shell.json(f"node bmc list --site {site}")["items"]] == [made["node_id"]]
    task = shell.json(f"node bmc look {node}")["task"]
    assert shell.json(f"node bmc look {node}")["task"]["id"] == task["id"], (
        "an open task of the same kind is the answer"
    )
    for other in (f"node bmc rotate {node}", f"node bmc reseal {node}", f"node bmc remove {node}", line):
        shell.refused(other, "invalid_state")
    assert ["waits", "for", "lease"] in [one.split() for one in shell.run(f"node bmc show {node}").stdout.splitlines()]
    end_tasks(deployment)
    assert shell.json(f"node power {node} on")["task"]["kind"] == "power_on"
    shell.refused(f"node power {node} off", "invalid_state")
    for kind in ("rotate", "reseal"):
        end_tasks(deployment)
        assert shell.json(f"node bmc {kind} {node}")["task"]["kind"] == kind
    shell.refused(f"site remove {site}", "site_in_use")
    end_tasks(deployment)
    assert "no_agent: test" in shell.run(f"node bmc show {node}").stdout
    assert shell.run(f"node bmc remove {node}").exit_code == 0
    shell.refused(f"node bmc remove {node}", "not_found")
    assert shell.json(f"node bmc list --site {site}")["items"] == []


def test_bad_input_of_bmc_set_is_refused_and_registers_nothing(
    shell: Shell, site: str, node: str, password_file: Path, tmp_path: Path
) -> None:
    line = f"node bmc set {node} --site {site} --username root"
    password = f"--password-file {password_file}"
    pin = f"--certificate-sha256 {PIN}"
    for url in ("http://192.0.2.7", "https://u:p@192.0.2.7", "https://192.0.2.7/redfish", "''"):
        shell.refused(f"{line} --url {url} {pin} {password}", "invalid")
    shell.refused(f"{line} --url https://b --certificate-sha256 00 {password}", "invalid")
    shell.refused(f"{line} --url https://b {pin} {password} --system-id ''", "invalid")
    shell.refused(f"{line} --url https://b {pin} {password} --recovery-key {PIN}", "usage", 2)
    shell.refused(f"node bmc set absent --site {site} {WHERE} {password}", "not_found")
    for content in (b"", b"\n", b"\xff\xfe", b"x" * 129):
        bad = tmp_path / "bad"
        bad.write_bytes(content)
        shell.refused(f"{line} --url https://b {pin} --password-file {bad}", "usage", 2)
    shell.refused(f"{line} --url https://b {pin} --password-file {tmp_path / 'absent'}", "usage", 2)
    shell.refused(f"{line} --url https://b {pin} --password-file {tmp_path}", "usage", 2)
    assert "has no BMC" in shell.refused(f"node bmc show {node}", "not_found")


def test_a_password_is_read_from_standard_input(shell: Shell, site: str, node: str) -> None:
    line = f"node bmc set {node} --site {site} {WHERE} --password-file - --output json"
    settings = shell.settings
    done = RUNNER.invoke(app, shlex.split(line), env=settings, input=f"{PASSWORD}\nmore\n")
    assert (done.exit_code, json.loads(done.stdout)["generation"]) == (0, 1), done.output
    assert PASSWORD not in done.output
    empty = RUNNER.invoke(app, shlex.split(line), env=settings, input="")
    assert (empty.exit_code, json.loads(empty.stdout)["error"]["code"]) == (2, "usage")
