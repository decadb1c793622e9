"""The first admin key. All later keys are made through the API; this one cannot, because the API asks for one."""

from __future__ import annotations

import hashlib
import secrets
import string

import psycopg
from psycopg.types.json import Jsonb

PREFIX_ALPHABET = string.ascii_lowercase + string.digits


def new_key() -> tuple[str, str]:
    """A key `berth_<prefix>_<secret>` (256 random bits) and its public prefix of eight characters."""
    prefix = "".join(secrets.choice(PREFIX_ALPHABET) for _ in range(8))
    return f"berth_{prefix}_{secrets.token_urlsafe(32)}", prefix


def create_admin_key(database_url: str, name: str) -> str:
    """Store a new admin key's hash, with an audit entry, and answer the key. It cannot be read again."""
    key, prefix = new_key()
    with psycopg.connect(database_url) as connection:
        made = connection.execute(
            "insert into api_keys (role, name, prefix, secret_hash) values ('admin', %s, %s, %s) returning id",
            (name, prefix, hashlib.sha256(key.encode()).digest()),
        ).fetchone()
        assert made is not None
        connection.execute(
            "insert into audit (principal_kind, principal_id, action, subject, detail) values (%s, %s, %s, %s, %s)",
            ("system", "berth admin-key create", "api_key.create", f"api-keys/{made[0]}", Jsonb({"name": name})),
        )
    return key


def admin_key_works(database_url: str, key: str) -> bool:
    """Whether this database knows `key` as an admin's that is neither revoked nor expired."""
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "select from api_keys where role = 'admin' and access_role = 'admin' and revoked_at is null"
            " and (expires_at is null or expires_at > clock_timestamp()) and secret_hash = %s",
            (hashlib.sha256(key.encode()).digest(),),
        ).fetchone()
    return found is not None
