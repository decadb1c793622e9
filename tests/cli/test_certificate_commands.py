"""`berth certificate`: what it stores, and that it verifies without a server."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typer.testing import CliRunner, Result

from berth.cli.main import app
from node_agent.wiping.statement import StatementEnvelope, make_statement, open_statement
from orchestrator.tasks.signing import TaskSigner
from orchestrator.wipes.certificate import (
    COUNTERSIGNATURE_PAYLOAD_TYPE,
    CountersignatureEnvelope,
    Countersigned,
    WipeCertificate,
    countersigned_payload,
    statement_digest,
)
from tests.berth.scripted import Reply, ScriptedServer
from tests.wiping import machines
from tests.wiping.sites import NOW, Site, crafted, predicate_of, wiped

SITE, NODE, ALLOCATION = Site(), uuid4(), uuid4()
SITE.enrol(NODE)


def made() -> WipeCertificate:
    """A certificate of the site."""
    found = predicate_of(NODE, wiped(), allocation_id=ALLOCATION)
    statement = StatementEnvelope.model_validate(SITE.sign(NODE, make_statement(found, {})))
    link = Countersigned(
        statement_sha256=statement_digest(open_statement(statement)), allocation_id=ALLOCATION, node_id=NODE, number=1,
        previous_sha256=None, countersigned_at=NOW,
    )  # fmt: skip
    payload = countersigned_payload(link)
    signature = TaskSigner(SITE.control_key).countersign(COUNTERSIGNATURE_PAYLOAD_TYPE, payload)
    counter = CountersignatureEnvelope(payload=base64.b64encode(payload).decode(), signatures=[signature])
    return WipeCertificate(statement=statement, countersignature=counter, key_set=SITE.key_set())


CERTIFICATE = made().model_dump_json()


def write_root(path: Path, root: Ed25519PrivateKey = SITE.root) -> Path:
    path.write_bytes(root.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


def run(line: str, **settings: str) -> Result:
    return CliRunner().invoke(app, shlex.split(line), env={"COLUMNS": "300", **settings})


def verify(tmp_path: Path, content: str, more: str = "", allocation_id: UUID = ALLOCATION) -> Result:
    """`berth certificate verify` of a file with this content."""
    (tmp_path / "wipe.json").write_text(content)
    root = write_root(tmp_path / "root.pem")
    return run(f"certificate verify {tmp_path}/wipe.json --allocation {allocation_id} --root-keys {root} {more}")


def test_show_writes_what_the_server_returns(tmp_path: Path) -> None:
    with ScriptedServer([Reply(body=json.loads(CERTIFICATE))] * 3) as server:
        api = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key"}
        printed = run(f"certificate show {ALLOCATION}", **api)
        stored = run(f"certificate show {ALLOCATION} --out {tmp_path}/wipe.json", **api)
        again = run(f"certificate show {ALLOCATION} --out {tmp_path}/wipe.json", **api)
        assert server.asked[0].path == f"/api/v1/allocations/{ALLOCATION}/wipe-certificate"
    assert json.loads(printed.stdout) == json.loads(CERTIFICATE) == json.loads((tmp_path / "wipe.json").read_text())
    assert (stored.exit_code, again.exit_code) == (0, 1)
    assert "cannot be written: File exists" in again.stderr


def test_verify_prints_what_is_proven_without_a_server(tmp_path: Path) -> None:
    done = verify(tmp_path, CERTIFICATE)
    assert done.exit_code == 0, done.output
    assert "nvme0 (sanitize, purge)" in done.stdout
    as_json = verify(tmp_path, CERTIFICATE, "--output json")
    assert json.loads(as_json.stdout)["verdict"] == "wiped"


def test_verify_prints_what_is_proven_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    found = machines.certificate().model_dump_json()
    root = write_root(tmp_path / "root.pem", machines.SITE.root)
    (tmp_path / "wipe.json").write_text(found)
    done = run(f"certificate verify {tmp_path}/wipe.json --allocation {machines.ALLOCATION} --root-keys {root}")
    assert done.exit_code == 0, done.output
    assert "disk S2 (nvme_sanitize_crypto, purge)" in done.stdout
    assert (
        "disks: all 2 that the deploy system found, TPM: not_asked, UEFI variables: not compared, firmware: not read"
        in done.stdout
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (CERTIFICATE[:-2], "malformed"), ("", "malformed"), ("[]", "malformed"),
        (CERTIFICATE.replace(TaskSigner(SITE.control_key).key_id, "0" * 16), "countersignature_invalid"),
        (json.dumps({**json.loads(CERTIFICATE), "key_set": None}), "key_set_missing"),
    ],
    ids=["truncated", "empty", "list", "other-key", "no-key-set"],
)  # fmt: skip
def test_verify_refuses_with_a_code(tmp_path: Path, content: str, code: str) -> None:
    done = verify(tmp_path, content, "--output json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"]["code"] == f"certificate_{code}"


def test_verify_refuses_a_certificate_whose_extensions_cannot_be_read(tmp_path: Path) -> None:
    bad = machines.certificate(machines.signed(certificate=crafted(machines.CERTIFICATE, machines.KEY, "duplicate")))
    file, root = tmp_path / "wipe.json", write_root(tmp_path / "root.pem", machines.SITE.root)
    file.write_text(bad.model_dump_json())
    done = run(f"certificate verify {file} --allocation {machines.ALLOCATION} --root-keys {root} --output json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"]["code"] == "certificate_statement_invalid"


def test_verify_refuses_another_allocation(tmp_path: Path) -> None:
    done = verify(tmp_path, CERTIFICATE, allocation_id=uuid4())
    assert done.exit_code == 1
    assert f"is about allocation {ALLOCATION}" in done.stderr


def test_verify_takes_the_readers_key_set(tmp_path: Path) -> None:
    stored = tmp_path / "key-set.json"
    stored.write_text(SITE.key_set().model_dump_json())
    without = json.dumps({**json.loads(CERTIFICATE), "key_set": None})
    assert verify(tmp_path, without, f"--key-set {stored}").exit_code == 0
    stored.write_text("{}")
    assert "certificate_key_set_untrusted" in verify(tmp_path, without, f"--key-set {stored} --output json").stdout


@pytest.mark.parametrize("missing", ["wipe.json", "root.pem", "keys.json"])
def test_a_file_that_is_missing_is_a_sentence(tmp_path: Path, missing: str) -> None:
    (tmp_path / "wipe.json").write_text(CERTIFICATE)
    (tmp_path / "keys.json").write_text(SITE.key_set().model_dump_json())
    write_root(tmp_path / "root.pem")
    (tmp_path / missing).unlink()
    done = run(
        f"certificate verify {tmp_path}/wipe.json --allocation {ALLOCATION} --root-keys {tmp_path}/root.pem"
        f" --key-set {tmp_path}/keys.json"
    )
    assert done.exit_code == 1
    assert "No such file" in done.stderr
    assert "Traceback" not in done.output
