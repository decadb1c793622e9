"""Read the recorded session."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, fields
from pathlib import Path

FILE = Path(__file__).parent / "session.json"


@dataclass(frozen=True)
class Session:
    """Both keys with what tpm2-tools say of them, a challenge's secret, and the quote that answers it for one key."""

    ek_public: bytes
    ak_public: bytes
    ek_sha256: bytes
    ak_name: bytes
    secret: bytes
    key_sha256: bytes
    quote: bytes
    signature: bytes

    def save(self) -> None:
        """Write the file."""
        content = {member.name: base64.b64encode(getattr(self, member.name)).decode() for member in fields(self)}
        FILE.write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls) -> Session:
        """Read the file."""
        return cls(**{name: base64.b64decode(text) for name, text in json.loads(FILE.read_text()).items()})
