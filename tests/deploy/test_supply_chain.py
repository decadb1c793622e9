"""The bill of materials, the statement of origin, and what lint looks for: known vulnerabilities and secrets in files."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.release import audit_packages, provenance, scan_secrets
from tests.deploy.deployment import ROOT

LOCK = ROOT / "requirements.lock"
PRODUCT_LOCKS = [LOCK, ROOT / "requirements-libvirt.lock"]
TEST_LOCK = "requirements-redfish.lock"
REPORT: dict[str, Any] = {
    "dependencies": [
        {"name": "safe", "version": "1", "vulns": []},
        {"name": "unknown", "skip_reason": "not in the database"},
        {"name": "weak", "version": "2", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}]},
    ]
}


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `make sbom` writes."""
    path = tmp_path_factory.mktemp("sbom") / "berth.cdx.json"
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\nsbom:")[2].partition("\n\n")[0]
    options = re.search(r"cyclonedx-py (.*?) --output-file", recipe.replace("\\\n", " "), re.DOTALL)
    assert options is not None
    locks = re.search(r"^PRODUCT_LOCKS = (.*)$", makefile, re.MULTILINE)
    assert locks is not None
    command = [str(Path(sys.executable).with_name("cyclonedx-py")), *options[1].split()]
    subprocess.run(
        [*command, "--output-file", str(path), "-"], cwd=ROOT, check=True, capture_output=True,
        input=b"".join((ROOT / name).read_bytes() for name in locks[1].split()),
    )  # fmt: skip
    return path.read_text()


@pytest.mark.full
def test_the_bill_of_materials_is_valid_and_holds_every_package_with_every_hash(bill: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    document = json.loads(bill)
    text = "".join(lock.read_text() for lock in PRODUCT_LOCKS)
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))
    listed = {part["name"]: part["version"] for part in document["components"]}
    assert listed.keys() == locked.keys()
    hashes = {
        found["content"]
        for part in document["components"]
        for reference in part["externalReferences"]
        for found in reference["hashes"]
    }
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", text))
    assert document["metadata"]["component"]["name"] == "berth"


def test_the_statement_of_origin_names_the_commit_and_digests(tmp_path: Path) -> None:
    built = tmp_path / "berth.whl"
    built.write_bytes(b"content")
    found = provenance.statement([built])
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    assert found["subject"] == [{"name": "berth.whl", "digest": {"sha256": hashlib.sha256(b"content").hexdigest()}}]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    sources = {part["name"]: part["digest"] for part in found["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert sources["source"] == {"gitCommit": commit}
    for lock in PRODUCT_LOCKS:
        assert sources[lock.name] == {"sha256": hashlib.sha256(lock.read_bytes()).hexdigest()}
    assert provenance.statement([built]) == found, "the same commit gives the same statement"


def test_a_tree_that_differs_from_its_commit_has_no_statement_of_origin(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "requirements.lock").write_text("")
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for step in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "Begin"]):
        subprocess.run([*git, *step], cwd=tmp_path, check=True, capture_output=True)
    out = tmp_path.parent / f"{tmp_path.name}.json"
    command = [sys.executable, "deploy/release/provenance.py", "--out", str(out), "requirements.lock"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    assert json.loads(out.read_text())["subject"][0]["name"] == "requirements.lock"
    (tmp_path / "changed").touch()
    out.unlink()
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (refused.returncode, out.exists()) == (1, False)
    assert "the working tree differs from its commit" in refused.stderr


def test_every_lock_is_of_the_product_or_of_the_tests_and_those_of_the_product_are_audited() -> None:
    assert audit_packages.LOCKS == PRODUCT_LOCKS
    assert {path.name for path in ROOT.glob("*.lock")} - {lock.name for lock in PRODUCT_LOCKS} == {TEST_LOCK}


def test_a_known_vulnerability_is_reported_until_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit_packages.vulnerable(REPORT) == ["weak 2: PYSEC-1, fixed in 3"]
    assert audit_packages.checked(REPORT) == 2
    monkeypatch.setitem(audit_packages.ACCEPTED, "CVE-1", "the function is not called")
    assert audit_packages.vulnerable(REPORT) == []


def test_a_secret_in_a_file_is_found(tmp_path: Path) -> None:
    made_up = "AKIA" + "QWERTYUIOPASDFGH"
    (tmp_path / "settings.py").write_text(f'ACCESS = "{made_up}"\n')
    (tmp_path / "clean.py").write_text('NAME = "berth"\n')
    found = scan_secrets.found_in(["settings.py", "clean.py"], tmp_path)
    assert [place for line, place in found.items() if "AWS" in line] == ["settings.py:1: AWS Access Key"]
    assert not [place for place in found.values() if place.startswith("clean.py")]
    assert made_up not in str(found), "the value is not printed"
    accepted = scan_secrets.ACCEPTED.read_text()
    assert not [line for line in found if line in accepted]
