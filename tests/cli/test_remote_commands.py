"""Commands that only call the API load nothing of the servers: what a person installs to use a remote Berth stays small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from berth.cli.main import app

NOT_FOR_REMOTE_USE = (
    "berth.local", "orchestrator", "worker", "outbox_relay", "node_agent", "migrations", "alembic", "asyncssh", "fastapi",
    "nats", "psycopg", "sqlalchemy", "temporalio",
)  # fmt: skip
USE_A_SERVER_DIRECTLY = {
    "login", "logout", "up", "demo",
    "certificate verify", "migrate", "doctor", "verify", "admin-key create", "events rebuild", "archive run",
    "audit-stream list", "audit-stream remove",
    "archive verify", "archive show",
    "backup run", "backup stream", "backup list", "backup verify", "backup restore", "backup keys", "backup open-keys",
    "backup new-recovery-key", "backup site-key", "restore begin", "restore export", "restore nodes", "restore run",
    "restore show", "site new-recovery-key",
}  # fmt: skip
ID = "0197f3a0-0000-7000-8000-000000000001"
WINDOW = ["--starts-at", "2030-03-01T12:00:00Z", "--ends-at", "2030-03-01T14:00:00Z"]
HOLD = ["--holder", "me"]
REMOTE: dict[str, list[str]] = {
    "alloc create": ["--sku", "s", "--gpus", "1", "--region", "r", "--ssh-key", ID],
    "alloc list": [],
    "alloc show": [ID],
    "alloc wait": [ID],
    "alloc update": [ID, "--name", "n"],
    "alloc reboot": [ID],
    "alloc stop": [ID],
    "alloc start": [ID],
    "alloc rebuild": [ID, "--discard-disk"],
    "alloc rescue": [ID],
    "alloc release": [ID],
    "alloc ssh": [ID],
    "force-release": [ID, "--reason", "x"],
    "force-cleanup": [ID, "--reason", "x", "--runtime-verified-absent"],
    "approvals list": [],
    "approvals show": [ID],
    "approvals approve": [ID],
    "approvals reject": [ID, "--reason", "x"],
    "approvals withdraw": [ID],
    "maintenance plan": ["--node", "n", *WINDOW],
    "maintenance commit": ["--node", "n", *WINDOW, "--reason", "x"],
    "maintenance list": [],
    "maintenance show": [ID],
    "maintenance tasks": [ID],
    "certificate show": [ID],
    "node upgrade": ["--to", "1", "--run", "true"],
    "node topology": ["n"],
    "node health": ["n"],
    "node approve": ["n", "--digest", "0" * 64],
    "maintenance cancel": [ID],
    "maintenance end": [ID],
    "reserve create": [*HOLD, "--resource", "seat-1"],
    "reserve list": [],
    "reserve show": [ID],
    "reserve confirm": [ID, *HOLD],
    "reserve cancel": [ID, *HOLD],
    "availability": [],
    "usage": [],
    "audit list": [],
    "audit export": [],
    "audit verify": [],
    "balance show": [],
    "balance set": [ID, "--prepaid"],
    "balance top-up": [ID, "1"],
    "balance withdraw": [ID, "1", "--reference", "x"],
    "operations show": ["key"],
    "resources list": [],
    "resources show": ["seat-1"],
    "resources create": ["seat-1"],
    "resources out-of-service": ["seat-1", "--reason", "x"],
    "resources in-service": ["seat-1"],
    "node list": [],
    "node show": ["n"],
    "node add": ["n", "--region", "r", "--gpu-model", "g", "--shape", "gpu_slice", "--slots", "8"],
    "node update": ["n", "--half-slots", "4"],
    "node token": ["n"],
    "node cordon": ["n"],
    "node uncordon": ["n"],
    "node drain": ["n"],
    "node attestation": ["n", "--policy", "off"],
    "node retire": ["n", "--reason", "x"],
    "node orphans": ["n"],
    "node quarantine": ["n", "0", "--reason", "x"],
    "node quarantines": ["n"],
    "node return": ["n", "0", "--note", "x"],
    "node burn-in": ["n"],
    "node burn-ins": ["n"],
    "node gpu-reset": ["n", "0"],
    "node attest": ["n"],
    "node bmc reset": ["n"],
    "node port show": ["n"],
    "node port set": ["n", "--switch", "leaf-1", "--port", "Ethernet8", "--mac", "52:54:00:00:00:01"],
    "node port remove": ["n"],
    "node port move": ["n", "check"],
    "site segments show": ["s"],
    "site segments set": ["s", "--provisioning", "100", "--first-tenant", "1000", "--last-tenant", "1999"],
    "node gpu-resets": ["n"],
    "node deploy-system": ["n"],
    "node inspect": ["n"],
    "node deploy-tasks": ["n"],
    "node bmc list": [],
    "node bmc show": ["n"],
    "node bmc set": ["n", "--site", "s", "--url", "https://b", "--certificate-sha256", "0" * 64, "--username", "u"],
    "node bmc remove": ["n"],
    "node bmc look": ["n"],
    "node bmc rotate": ["n"],
    "node bmc reseal": ["n"],
    "node power": ["n", "on"],
    "node run": ["n"],
    "node adopt-machine": [
        "n",
        "--tenant",
        ID,
        "--sku",
        "s",
        "--ssh-key",
        ID,
        "--host",
        "h",
        "--user",
        "u",
        "--host-key",
        "ssh-ed25519 AAAA",
        "--mac",
        "02:00:00:00:00:01",
        "--address",
        "192.0.2.7/24",
    ],
    "node adoption": ["n"],
    "node wipe": ["n", "--yes"],
    "firmware list": [],
    "firmware put": ["firmware.json"],
    "firmware show": ["n"],
    "firmware remove": [ID],
    "site create": ["s", "--recovery-key", "0" * 64],
    "site list": [],
    "site show": ["s"],
    "site remove": ["s"],
    "site enrol-agent": ["s", "a"],
    "site revoke-agent": ["s", "a", "--reason", "r"],
    "alloc report-fault": [ID, "--symptom", "slow", "--evidence", "/dev/null"],
    "alloc faults": [],
    "alloc fault": [ID],
    "alloc console": [ID],
    "alloc devices": [ID],
    "fault list": [],
    "hardware list": [],
    "pool list": [],
    "pool attestation": ["1", "--policy", "off"],
    "hardware show": ["S-0001"],
    "hardware history": ["S-0001"],
    "hardware repair": ["S-0001", "--reason", "x"],
    "hardware close": [ID, "--result", "x"],
    "hardware repairs": [],
    "fault show": [ID],
    "node adopt": ["n", ID, "--reason", "x"],
    "node destroy-orphan": ["n", ID, "--reason", "x"],
    "events tail": ["--type", "provisioning.>", "--no-follow"],
    "events show": ["1"],
    "events dead-letters list": [],
    "events dead-letters show": [ID],
    "events dead-letters retry": [ID],
    "events dead-letters discard": [ID, "--reason", "x"],
    "tenant create": ["t"],
    "tenant list": [],
    "tenant delete": [ID],
    "tenant quota": ["t"],
    "key create": ["k", "--role", "admin", "--expires-at", "2100-01-01T00:00:00Z", "--owner", "ci"],
    "key list": [],
    "key rotate": [ID, "--overlap-seconds", "60"],
    "key revoke": [ID],
    "member invite": ["--role", "viewer", "--name", "v", "--expires-in-seconds", "60"],
    "member list": [],
    "member set-role": [ID, "viewer"],
    "member remove": [ID],
    "invitation list": [],
    "invitation revoke": [ID],
    "invitation accept": [],
    "ssh-key add": ["k", "key.pub"],
    "ssh-key list": [],
    "sku put": ["s", "--shape", "gpu_slice", "--gpu-model", "g", "--count", "1"],
    "sku list": [],
    "image put": ["i", "--url", "https://x/i", "--sha256", "0" * 64, "--shape", "gpu_slice"],
    "image import": ["http://127.0.0.1:1/i", "--name", "i", "--shape", "gpu_slice"],
    "image list": [],
    "image show": ["i"],
    "image delete": ["i"],
    "region put": ["r", "--display-name", "R"],
    "region list": [],
    "kv get": ["k"],
    "kv put": ["k", "v"],
    "kv range": [],
    "kv commit": ["transaction.json"],
    "retention list": [],
    "retention consumers": [],
    "retention forget-consumer": ["c", "--reason", "x"],
    "retention set": ["p", "1"],
    "retention get": ["p"],
    "retention delete": ["p"],
    "webhook create": ["https://x"],
    "webhook list": [],
    "webhook show": [ID],
    "webhook change": [ID, "--disable"],
    "webhook rotate": [ID],
    "webhook test": [ID],
    "webhook deliveries": [ID],
    "webhook replay": [ID, "1"],
    "webhook delete": [ID],
}

RUN_EACH = """
import json, sys
from typer.testing import CliRunner
from berth.cli import session
from berth.cli.commands import waiting
from berth.cli.main import app
commands, unwanted = json.loads(sys.argv[1])
session.RETRY_SECONDS = waiting.RETRY_SECONDS = 0.0
def loaded():
    return sorted(name for name in sys.modules if any(name == of or name.startswith(of + ".") for of in unwanted))
report = {"import": [None, loaded()]}
for name, arguments in commands.items():
    done = CliRunner().invoke(app, [*name.split(), *arguments])
    report[name] = [done.exit_code, loaded()]
print(json.dumps(report))
"""


def _commands(group: TyperGroup, path: tuple[str, ...] = ()) -> set[str]:
    found: set[str] = set()
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            found |= _commands(command, (*path, name))
        else:
            found.add(" ".join((*path, name)))
    return found


def test_every_command_is_listed_here_as_remote_or_as_using_a_server_directly() -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    assert _commands(program) == {*REMOTE, *USE_A_SERVER_DIRECTLY}


@pytest.mark.full
def test_commands_that_only_call_the_api_load_no_module_of_the_servers_or_of_the_local_stack(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA")
    (tmp_path / "firmware.json").write_text('{"vendor": "v", "product": "p", "components": []}')
    (tmp_path / "transaction.json").write_text('{"operations": []}')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    # Nothing listens on port 1: every command runs as far as its first request.
    environment |= {"BERTH_API_URL": "http://127.0.0.1:1", "BERTH_API_KEY": "k", "XDG_STATE_HOME": str(tmp_path)}
    environment["BERTH_INVITATION_TOKEN"] = "berth_inv_x"
    done = subprocess.run(
        [sys.executable, "-c", RUN_EACH, json.dumps([REMOTE, NOT_FOR_REMOTE_USE])],
        env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {name: loaded for name, (_, loaded) in report.items() if loaded} == {}
    unreachable = 3
    assert {name: code for name, (code, _) in report.items() if code not in (None, unreachable)} == {}
