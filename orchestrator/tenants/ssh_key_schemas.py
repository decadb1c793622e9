"""SSH keys as tenants bring them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field

from orchestrator.http.fields import UNSHOWN, Printable, Request
from orchestrator.tenants.ssh_key_format import LINE_LENGTH_MAX, TYPES, read_ssh_public_key


def _one_key(line: str) -> str:
    """The key in its canonical form; raises ValueError with what is wrong."""
    return read_ssh_public_key(line).line


LINE_PATTERN = rf"^\s*({'|'.join(sorted(TYPES))})\s+[A-Za-z0-9+/]+=*(\s[^\x00-\x1f{UNSHOWN}]*)?\s*$"


OpenSshKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LINE_LENGTH_MAX,
        json_schema_extra={"format": "openssh-public-key", "pattern": LINE_PATTERN},
    ),
    AfterValidator(_one_key),
]


class AddSshKey(Request):
    """A public key in OpenSSH's format, one line."""

    name: Printable
    public_key: OpenSshKey


class SshKey(BaseModel):
    """A tenant's public key; `fingerprint` as `ssh-keygen -l` prints it."""

    id: UUID
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime
