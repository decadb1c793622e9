"""Which files of keys are escrowed, by the names that `deploy/make-secrets` and the local stack give them, and which are not.

A test compares both lists with the settings of every process and with what the two make: a new file of a key is named here, or
excluded with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from berth.cli.deployment.backup.problems import BackupProblem


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file that is escrowed: its name in an escrow, in a deployment's secrets and in a local stack's, and the settings for it.

    None: that kind of installation does not keep it with its secrets.
    """

    name: str
    deployed: str | None
    local: str | None
    settings: tuple[str, ...] = ()


KEY_FILES = (
    KeyFile("node-ca.key", "node_ca_key.pem", "node-ca.key", ("node_ca_key_file",)),
    KeyFile("node-ca.pem", "node_ca_certificate.pem", "node-ca.pem", ("node_ca_certificate_file",)),
    KeyFile("deploy-ca.key", "deploy_ca_key.pem", "deploy-ca.key", ("deploy_ca_key_file",)),
    KeyFile("deploy-ca.pem", "deploy_ca_certificate.pem", "deploy-ca.pem", ("deploy_ca_certificate_file",)),
    KeyFile("task-signing.key", "task_signing_key.pem", "task-signing.key", ("task_signing_key_file",)),
    KeyFile("task-verifying.pem", "task_verifying_keys.pem", "task-verifying.pem"),
    KeyFile("webhook.keys", "webhook_keys", "webhook.keys", ("webhook_key_file",)),
    KeyFile("temporal-payload.keys", "temporal_payload_keys", "temporal-payload.keys", ("temporal_payload_key_file",)),
    KeyFile("key-set.json", "key_set.json", "key-set.json", ("key_set_file",)),
    KeyFile("root-public.pem", "root_public_keys.pem", "root-public.pem", ("root_keys_file",)),
    KeyFile("root.key", None, "root.key"),
    KeyFile("server-ca.key", "server_ca_key.pem", None),
    KeyFile("server-ca.pem", "server_ca_certificate.pem", None),
    KeyFile("nats-tenants.conf", "nats_tenants.conf", None),
)  # fmt: skip
EXCLUDED_SETTINGS = {
    "public_tls_key_file": "of a listener: issued anew by its certificate's authority",
    "public_tls_certificate_file": "as its key",
    "public_ca_file": "a public certificate of another authority",
    "node_tls_key_file": "of a listener: signed anew by the node CA",
    "node_tls_certificate_file": "as its key",
    "console_tls_key_file": "of a listener: signed anew by the node CA",
    "console_tls_certificate_file": "as its key",
    "oidc_ca_certificate_file": "a public certificate of another authority",
    "temporal_tls_key_file": "of a client: signed anew by the server CA",
    "temporal_tls_certificate_file": "as its key",
    "temporal_api_key_file": "issued anew by the Temporal service",
    "temporal_ca_file": "a public certificate",
    "nats_ca_file": "a public certificate",
    "audit_syslog_key_file": "of a client: issued anew by the collector's authority",
    "audit_syslog_certificate_file": "as its key",
    "audit_syslog_ca_file": "a public certificate",
    "archive_s3_credentials_file": "issued anew by the storage",
}
EXCLUDED_PROCESSES = {"Node agent": "a node has its own keys, and enrols again"}
EXCLUDED_FILES = {
    "*password*": "set anew: deploy/database-roles.sh, nats.conf",
    "*_url": "an address with a password, made from it",
    "*-url": "an address with a password, made from it",
    "admin-key": "created anew by `berth admin-key create`; the database has a digest of it",
    "enrolment-*.token": "one use, ten minutes",
    "node[-_]listener*": "signed anew by the node CA",
    "console[-_]listener*": "signed anew by the node CA",
    "nats_key.pem": "signed anew by the server CA",
    "nats_certificate.pem": "as its key",
    "postgres_key.pem": "signed anew by the server CA",
    "postgres_certificate.pem": "as its key",
    "temporal_key.pem": "signed anew by the server CA",
    "temporal_certificate.pem": "as its key",
    "temporal_client_key.pem": "signed anew by the server CA",
    "temporal_client_certificate.pem": "as its key",
    "node_ca_certificates.pem": "public certificates; the newest is escrowed with its key",
    "deploy_ca_certificates.pem": "public certificates; deploy/make-secrets writes those that the escrowed key set names",
    "public_ca_certificate.pem": "a public certificate of another authority",
}
"""Patterns of file names in the directories of secrets."""


def find_key_files(secrets: Path) -> dict[str, bytes]:
    """The content of each file by its name in an escrow. Raises `BackupProblem` if one is missing or may not be read."""
    deployed = (secrets / "webhook_keys").exists()
    found: dict[str, bytes] = {}
    missing = []
    for key in KEY_FILES:
        name = key.deployed if deployed else key.local
        if name is None:
            continue
        try:
            found[key.name] = (secrets / name).read_bytes()
        except OSError:
            missing.append(name)
    if missing:
        raise BackupProblem(
            "key_files_missing",
            f"{secrets} lacks {', '.join(missing)}, or they may not be read; nothing was escrowed. Name the directory that"
            " deploy/make-secrets made with --secrets",
        )
    return found
