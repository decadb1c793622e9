"""Escrow of the recovery keys of sites, which open the passwords of BMCs: made where the key is, kept with the backups.

No server has such a key, so that an intruder of the control plane opens no password: its escrow is a file that is made offline
and carried into the backup directory.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import psycopg
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from berth.cli.deployment.backup import escrow
from berth.cli.deployment.backup.directory import BackupDirectory, create_whole, of_system
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS
from berth.process.sealed_passwords import fingerprint, read_key

SUBJECT = "BMC recovery keys"
_SITES = "select name, recovery_key from sites order by name"
_NAMED_MAX = 10


def write_escrow(private: Path, recipient: X25519PublicKey, folder: Path) -> Path:
    """Encrypt the recovery key of a site into a new file of the folder; returns its path. Raises `BackupProblem`."""
    try:
        public = read_key(private).public_key().public_bytes_raw()
        name = f"{escrow.SITE_PREFIX}{fingerprint(public)}"
        path = folder / f"{name}{escrow.SUFFIX}"
        create_whole(path, escrow.seal({f"{name}.pem": private.read_bytes()}, recipient, datetime.now(UTC)))
    except OSError as error:
        raise of_system(error, private) from error
    except (ValueError, TypeError) as error:
        raise BackupProblem(
            "recovery_key_wrong", f"{private} holds no private key of `berth site new-recovery-key`"
        ) from error
    return path


def site_key_finding(database_url: str, path: Path | None) -> Finding:
    """Needs the schema. Whether the recovery key of each site is escrowed in the backup directory `path`."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        sites = [(str(name), bytes(key)) for name, key in connection.execute(_SITES).fetchall()]
    if not sites or path is None:
        return Finding(
            SUBJECT, "ok", f"{len(sites)} sites" if not sites else "not compared: no backup directory is known"
        )
    lacking = [f"{name} ({fingerprint(key)})" for name, key in sites if not _is_escrowed(BackupDirectory(path), key)]
    if not lacking:
        return Finding(SUBJECT, "ok", f"those of {len(sites)} sites are escrowed")
    more = f" and {len(lacking) - _NAMED_MAX} more" if len(lacking) > _NAMED_MAX else ""
    return Finding(
        SUBJECT,
        "warning",
        f"of {', '.join(lacking[:_NAMED_MAX])}{more} none is escrowed: once its file and every agent of the site are lost, no"
        " password of a BMC can be opened. Run `berth backup site-key` where the file is",
    )


def _is_escrowed(directory: BackupDirectory, public: bytes) -> bool:
    name = f"{escrow.SITE_PREFIX}{fingerprint(public)}"
    try:
        header = escrow.read_header((directory.keys / f"{name}{escrow.SUFFIX}").read_bytes())
    except (BackupProblem, OSError):
        return False
    return f"{name}.pem" in header.digests
