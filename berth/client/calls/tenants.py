"""The caller's account and its SSH keys, one function per path (docs/reference/http-api.md)."""

from __future__ import annotations

from uuid import UUID

from berth.client.calls.call import Call, read, read_page, remove, write
from berth.client.models import Account, Page, SshKey

API = "/api/v1"


def me() -> Call[Account]:
    """Principal, role, tenant and limits of the caller."""
    return read(f"{API}/me", Account)


def add_ssh_key(*, name: str, public_key: str, idempotency_key: str | None = None) -> Call[SshKey]:
    """Store a public key in OpenSSH's format. Raises `AlreadyExists` when the name or the key is there already."""
    return write("POST", f"{API}/ssh-keys", SshKey, {"name": name, "public_key": public_key}, idempotency_key)


def list_ssh_keys(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[SshKey]]:
    """The tenant's public keys."""
    return read_page(f"{API}/ssh-keys", SshKey, limit=limit, cursor=cursor)


def get_ssh_key(key_id: UUID) -> Call[SshKey]:
    """One public key. Raises `NotFound`."""
    return read(f"{API}/ssh-keys/{key_id}", SshKey)


def remove_ssh_key(key_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Forget a public key; allocations that run keep theirs."""
    return remove(f"{API}/ssh-keys/{key_id}", idempotency_key)
