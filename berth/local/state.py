"""The state directory of a local stack: its files, its ports, and the lock that admits one stack.

state.json      ports, remembered so that a restart continues on the same ones (nodes know theirs)
processes.json  what runs now, so that the next start ends what a killed `berth up` left
endpoints.json  where the CLI finds the stack
restarts.json   what died since the stack started, and how often it was started again
secrets/        0700: keys, passwords, tokens; never inside or above a data directory of PostgreSQL, which opens
                every directory above its own (TRAPS)
postgres/ (or postgres-ha/) nats/ temporal/ agents/<name>/ images/ log/
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.cli.known_stack import SECRETS_DIRECTORY, StackProblem, read_json
from berth.local.ports import choose_port, keep_port
from berth.local.servers import answers
from berth.process.json_objects import JsonObject

# Below Linux' range for outgoing connections, so that no outgoing connection takes a port between two runs.
PORTS_FIRST, PORTS_LAST = 20000, 32000
PUBLIC_PORT_WISHED = 8080
MARK = "state.json"
LOCK = "stack.lock"
RESTARTS = "restarts.json"
NEW = ".new"


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file so that a reader, or a crash, sees the old content or the new, never half."""
    beside = path.with_name(path.name + NEW)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _is_stacks(entry: Path) -> bool:
    """Whether this is another stack's own directory, as var/demo inside var."""
    return (entry / MARK).exists() or (entry / LOCK).exists()


class StateDirectory:
    """One state directory. Making the object touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def secrets(self) -> Path:
        """Keys, passwords and tokens; 0700."""
        return self.path / SECRETS_DIRECTORY

    @property
    def log(self) -> Path:
        """One log file per process."""
        return self.path / "log"

    @property
    def images(self) -> Path:
        """Image files that the seeded catalogue points to."""
        return self.path / "images"

    def agent(self, name: str) -> Path:
        """The state directory of one node's agent."""
        return self.path / "agents" / name

    def prepare(self) -> None:
        """Make the directory and what is in it.

        Raises `StackProblem` if that is not possible, or if the directory holds foreign files.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not (self.path / MARK).exists():
                # Whatever is in a directory with the mark goes with the next --fresh.
                self._require_nothing_else()
                self.write(MARK, {})
            for folder in (self.secrets, self.path / "agents"):
                folder.mkdir(mode=0o700, exist_ok=True)
                folder.chmod(0o700)
            self.log.mkdir(exist_ok=True)
            self.images.mkdir(exist_ok=True)
        except OSError as error:
            raise StackProblem(f"cannot use {self.path} as state directory: {error.strerror}") from error

    def start_over(self) -> None:
        """Delete everything in the directory but the lock and other stacks' directories.

        Raises `StackProblem` for a directory that is not a stack's.
        """
        if not self.path.exists():
            return
        if not (self.path / MARK).exists():
            self._require_nothing_else()
        inside = [entry for entry in self.path.iterdir() if entry.name != LOCK and not _is_stacks(entry)]
        for entry in inside:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _require_nothing_else(self) -> None:
        if any(entry.name not in (LOCK, MARK + NEW) and not _is_stacks(entry) for entry in self.path.iterdir()):
            raise StackProblem(f"{self.path} holds files that are not a stack's; name another --state-dir")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process; raises `StackProblem` with the pid of the process that holds it.

        The lock is the kernel's (flock), so it ends with its holder however that ends.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StackProblem(f"cannot use {self.path} as state directory: {error.strerror}") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.read(descriptor, 32).decode().strip() or "unknown"
                raise StackProblem(
                    f"another stack (pid {holder}) runs on {self.path}; stop it or name another --state-dir"
                ) from error
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def read(self, name: str) -> JsonObject:
        """A JSON file of the directory; empty if there is none. Raises `StackProblem` if it is damaged."""
        return read_json(self.path / name)

    def write(self, name: str, content: JsonObject) -> None:
        """Replace a JSON file of the directory, whole or not at all."""
        write_whole(self.path / name, json.dumps(content, indent=2) + "\n")


class Ports:
    """The stack's ports by name: chosen once, stored in state.json, and bound so that no other process chooses them."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._ports: dict[str, int] = dict(state.read(MARK).get("ports", {}))
        for port in self._ports.values():
            keep_port(port)

    def of(self, name: str, wished: int | None = None, *, required: int | None = None) -> int:
        """The port called `name`: `required` if given, else the remembered one, else `wished` or any that is free."""
        if required is not None and self._ports.get(name) != required:
            self._keep(name, required)
        elif name not in self._ports:
            self._keep(name, wished if wished is not None and not answers(wished) else self._choose())
        return self._ports[name]

    @staticmethod
    def _choose() -> int:
        port = choose_port(range(PORTS_FIRST, PORTS_LAST))
        if port is None:
            raise StackProblem(f"found no free port between {PORTS_FIRST} and {PORTS_LAST}")
        return port

    def _keep(self, name: str, port: int) -> None:
        keep_port(port)
        self._ports[name] = port
        self._state.write(MARK, {**self._state.read(MARK), "ports": self._ports})
