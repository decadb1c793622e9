"""The agent as a real process, and the tasks that tests give it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncssh

from node_agent.protocol import Connection
from tests.node_agent.control_plane import ControlPlane


class AgentProcess:
    """`python -m node_agent` on one state directory."""

    command: tuple[str, ...] = (sys.executable, "-m", "node_agent")

    def __init__(self, plane: ControlPlane, directory: Path, **environment: str) -> None:
        self.state_dir = directory / "agent"
        self.log_file = directory / "agent.log"
        self._environment = {
            "PATH": os.environ["PATH"],
            "BERTH_API_URL": plane.api_url,
            "BERTH_AGENT_STATE_DIR": str(self.state_dir),
            "BERTH_ROOT_KEYS_FILE": str(plane.root_keys_file),
            "BERTH_SANDBOX_ALLOWED": "true",
            "BERTH_ENROLMENT_HTTP_ALLOWED": "true",
            "BERTH_AGENT_WAIT_SECONDS": "20",
            "BERTH_AGENT_HEARTBEAT_SECONDS": "0.2",
            "BERTH_AGENT_STARTUP_SECONDS": "30",
            "BERTH_AGENT_STOP_SECONDS": "2",
            **environment,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command], env={**self._environment, **environment},
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """As a crash would end it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    async def stop(self) -> int:
        """As an operator would end it; its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return await self.exit_status()

    async def end_guests(self) -> int:
        """As the host's shutdown does, once the agent was stopped; the exit status of the command."""
        with self.log_file.open("ab") as log:
            ending = await asyncio.create_subprocess_exec(
                *self.command, "--end-guests", env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
            return await ending.wait()

    async def exit_status(self) -> int:
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, 30)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def sandbox(self) -> Path:
        return self.state_dir / "sandbox"

    def guest_directory(self, allocation_id: object) -> Path:
        return self.sandbox / "allocations" / str(allocation_id)

    def leased_slots(self) -> set[str]:
        return {path.name for path in (self.sandbox / "leases").glob("slot-*")}


class Tenant:
    """A tenant with a key pair, and an image."""

    def __init__(self, directory: Path, image_bytes: int = 100_000) -> None:
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.public_key = self.key.export_public_key().decode().strip()
        self.image = directory / "image.bin"
        self.image.write_bytes(os.urandom(image_bytes))
        self.image_sha256 = hashlib.sha256(self.image.read_bytes()).hexdigest()

    def provision(self, slots: list[int], **changes: Any) -> dict[str, Any]:
        return {
            "slots": slots,
            "gpu_model": "H200",
            "image": {"name": "test", "url": self.image.as_uri(), "sha256": self.image_sha256},
            "ssh_public_keys": [self.public_key],
            "hostname": "guest",
            **changes,
        }

    async def run(self, connection: Connection, command: str, key: asyncssh.SSHKey | None = None) -> str:
        """Log in with the tenant's key (or another), checking the host key, and run a command."""
        async with asyncssh.connect(
            connection.host, connection.port, username=connection.user, client_keys=[key or self.key], config=None,
            known_hosts=asyncssh.import_known_hosts(f"[{connection.host}]:{connection.port} {connection.host_key}"),
            agent_path=None,
        ) as login:  # fmt: skip
            return str((await login.run(command, check=True)).stdout)


def release(slots: list[int], graceful_seconds: float = 5.0, **faults: str) -> dict[str, Any]:
    return {"slots": slots, "graceful_seconds": graceful_seconds, "faults": faults}


def connection_of(result: dict[str, Any] | None) -> Connection:
    assert result is not None
    return Connection.model_validate(result["connection"])
