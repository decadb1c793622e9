"""The recovery key of a site is escrowed where its file is, and `berth doctor` names sites whose key is not with the backups."""

from __future__ import annotations

import shutil
from pathlib import Path

from berth.cli.deployment.backup import escrow
from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.site_keys import SUBJECT, site_key_finding
from berth.process.sealed_passwords import fingerprint, read_key
from tests.allocations.seeding import connect
from tests.berth.commands import assert_one_sentence, berth


def test_the_recovery_key_of_a_site_is_escrowed_and_opened(database_url: str, tmp_path: Path) -> None:
    directory = BackupDirectory(tmp_path / "backups")
    directory.claim_for("7000000000000000001")
    key, recovery = tmp_path / "site.pem", tmp_path / "recovery.pem"
    assert berth("site", "new-recovery-key", str(key)).returncode == 0
    public = read_key(key).public_key().public_bytes_raw()
    with connect(database_url) as connection:
        connection.execute("insert into sites (name, recovery_key) values ('rack-7', %s)", (public,))
    before = site_key_finding(database_url, directory.path)
    assert (before.subject, before.verdict) == (SUBJECT, "warning")
    assert f"rack-7 ({fingerprint(public)})" in before.detail
    recipient = escrow.new_key(recovery)
    done = berth("backup", "site-key", str(key), "--to", recipient, "--into", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.escrow")
    assert key.read_bytes() not in made.read_bytes()
    shutil.copy(made, directory.keys)
    assert site_key_finding(database_url, directory.path).verdict == "ok"
    assert escrow.newest(directory) is None, "it is no escrow of the control plane's key files"
    opened = berth(
        "backup", "open-keys", str(directory.keys / made.name), "--key", str(recovery), "--into", str(tmp_path / "o")
    )
    assert opened.returncode == 0, opened.stderr
    assert (tmp_path / "o" / f"{made.stem}.pem").read_bytes() == key.read_bytes()
    with connect(database_url) as connection:
        connection.execute("insert into sites (name, recovery_key) values ('rack-8', %s)", (bytes(32),))
    after = site_key_finding(database_url, directory.path)
    assert (after.verdict, "rack-7" in after.detail, "rack-8" in after.detail) == ("warning", False, True)


def test_a_file_that_is_no_recovery_key_is_refused_in_one_sentence(tmp_path: Path) -> None:
    recipient = escrow.new_key(tmp_path / "recovery.pem")
    (tmp_path / "other.pem").write_text("no key")
    refused = berth("backup", "site-key", str(tmp_path / "other.pem"), "--to", recipient, "--into", str(tmp_path))
    assert_one_sentence(refused, 1, "holds no private key of `berth site new-recovery-key`")
    absent = berth("backup", "site-key", str(tmp_path / "absent.pem"), "--to", recipient, "--into", str(tmp_path))
    assert absent.returncode != 0
    assert list(tmp_path.glob("*.escrow")) == []
