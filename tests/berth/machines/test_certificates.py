"""A wipe certificate is a proof for the demo only if it is about the machine's disk; a changed one is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from berth.local.demo.machines.certificates import require_disk, require_refused, verify, with_a_changed_statement
from berth.local.demo.machines.steps import NotProven
from berth.local.machines.plan import DISK_SERIAL
from orchestrator.wipes.certificate import CertificateRefused, WipeCertificate, read_certificate, verify_certificate
from tests.wiping import machines


@pytest.mark.parametrize(
    "shown",
    ["", "verdict wiped\n", f"devices disk {DISK_SERIAL} (overwrite, clear)", "verdict wiped\ndevices disk OTHER ("],
)
def test_what_is_not_about_the_disk_is_no_proof(shown: str) -> None:
    with pytest.raises(NotProven, match=DISK_SERIAL):
        require_disk(shown)
    require_disk(f"verdict  wiped\ndevices  disk {DISK_SERIAL} (discard_zero_out, clear)")


def test_the_changed_certificate_differs_in_what_was_signed_alone() -> None:
    document = machines.certificate().model_dump(mode="json")
    changed = with_a_changed_statement(document)
    assert {name for name in document if document[name] != changed[name]} == {"statement"}
    content = WipeCertificate.model_validate(changed).model_dump_json().encode()
    with pytest.raises(CertificateRefused) as refused:
        verify_certificate(read_certificate(content), machines.ALLOCATION, machines.SITE.roots)
    assert refused.value.reason == "statement_invalid"


def test_the_command_line_verifies_it_and_refuses_it_for_another_allocation(tmp_path: Path) -> None:
    file, roots = tmp_path / "wipe.json", tmp_path / "root.pem"
    file.write_text(machines.certificate().model_dump_json())
    public = machines.SITE.root.public_key()
    roots.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    done = asyncio.run(verify(file, machines.ALLOCATION, roots))
    assert (done.returncode, done.stderr) == (0, "")
    assert "disk S1 (overwrite, clear)" in done.stdout
    asyncio.run(require_refused(file, uuid4(), roots, "certificate_other_allocation"))
    with pytest.raises(NotProven, match="certificate_other_allocation was expected"):
        asyncio.run(require_refused(file, machines.ALLOCATION, roots, "certificate_other_allocation"))
    with pytest.raises(NotProven, match="certificate_malformed was expected"):
        asyncio.run(require_refused(file, uuid4(), roots, "certificate_malformed"))
