"""A control plane that signs tasks of a site, as its agent knows it."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node_agent.admission import Refused, Untrusted
from node_agent.clock import ServerClock
from node_agent.journal_state import JournalState
from node_agent.key_set import TaskKey, key_id
from node_agent.protocol import HandedOutTask, TaskBody, TaskType, sign_task
from node_agent.site.admission import AdmittedBmcTask, SiteTrust, admit

SITE, NODE = uuid.uuid4(), uuid.uuid4()
PARAMETERS: dict[str, Any] = {
    "site_id": str(SITE), "url": "https://192.0.2.7", "certificate_sha256": "0" * 64, "username": "u",
    "passwords": [{"generation": 1, "sealed": {str(SITE): "x"}}],
}  # fmt: skip


@dataclass
class Server:
    """What an agent knows of its control plane, whose clock is `hours` ahead of this machine's."""

    hours: float = 0.0
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    journal: JournalState = field(default_factory=JournalState)

    def __post_init__(self) -> None:
        self.now = datetime.now(UTC) + timedelta(hours=self.hours)
        self.clock = ServerClock()
        self.clock.observe(self.now)

    def body(self, **changed: Any) -> TaskBody:
        named: dict[str, Any] = {
            "task_id": uuid.uuid4(), "type": TaskType.METAL_LOOK, "node_id": NODE, "node_epoch": 1, "allocation_id": None,
            "fence": 7, "parameters": PARAMETERS, "not_before": self.now - timedelta(seconds=5),
            "expires_at": self.now + timedelta(minutes=15), "key_id": key_id(self.key.public_key()), **changed,
        }  # fmt: skip
        return TaskBody(**named)

    def sign(self, body: TaskBody, task_id: uuid.UUID | None = None) -> HandedOutTask:
        return HandedOutTask(task_id=task_id or body.task_id, envelope=sign_task(body, self.key))

    def admit(self, handed: HandedOutTask, **limits: Any) -> AdmittedBmcTask | Refused | Untrusted:
        public = self.key.public_key()
        name = key_id(public)
        text = base64.b64encode(public.public_bytes_raw()).decode()
        trust = SiteTrust(SITE, {name: public}, {name: TaskKey(key_id=name, public_key=text, **limits)})
        return admit(handed, trust, self.journal, self.clock)
