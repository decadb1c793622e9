"""One member of the cluster as the local stack supervises it: its Patroni, which starts and ends its PostgreSQL."""

from __future__ import annotations

import base64
import http.client
import json
import os
import pwd
import signal
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path

import yaml

from berth.local.high_availability.configuration import REST_USER, MemberPorts, Passwords, configuration
from berth.local.high_availability.postmasters import kill_postmaster
from berth.local.secret_files import write_secret
from berth.local.servers import LocalPostgres, LocalServer, ServerProblem, postgres_user, require_free_port
from berth.local.supervision import SupervisedServer
from berth.process.json_objects import JsonObject

REST_SECONDS_MAX = 1.0


class Member(LocalServer):
    """One member. Its process is Patroni; PostgreSQL is Patroni's and goes on when Patroni dies.

    `stop_all` ends the whole cluster in order: members that ended one by one would hand over the primary each time.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        ports: Mapping[str, MemberPorts],
        passwords: Passwords,
        stop_all: Callable[[], None],
    ) -> None:
        self.ports = ports[name]
        super().__init__(root / name, self.ports.rest)
        self.short_name = name
        self.name = f"postgres-{name}"
        self._all_ports = ports
        self._passwords = passwords
        self._stop_all = stop_all
        self.user: str | None = None

    @property
    def log(self) -> Path:
        """Output of Patroni and of its PostgreSQL."""
        return self.directory.parent.parent / "log" / f"{self.name}.log"

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.directory / "data"

    @property
    def file(self) -> Path:
        """Patroni's configuration, 0600 and outside the member's directory: only this process may replace it."""
        return self.directory.with_suffix(".yml")

    def url(self, database: str = "berth") -> str:
        """The address of this member alone, as the superuser."""
        return f"postgresql://postgres:{self._passwords.superuser}@127.0.0.1:{self.ports.postgres}/{database}"

    def prepare(self) -> None:
        """Make the directory, for the system user that PostgreSQL runs as."""
        programs = Path(LocalPostgres.program("postgres")).parent
        self.user = postgres_user(self.directory, programs.parent)
        self.directory.chmod(0o700)

    def configure(self, *, may_lead: bool) -> None:
        """Write the configuration."""
        programs = Path(LocalPostgres.program("postgres")).parent
        content = configuration(
            self.short_name, self.directory, programs, self._all_ports, self._passwords, may_lead=may_lead
        )
        write_secret(self.file, yaml.safe_dump(content, sort_keys=False))
        if self.user is not None:
            entry = pwd.getpwnam(self.user)
            os.chown(self.file, entry.pw_uid, entry.pw_gid)

    def start(self) -> None:
        """Start Patroni without waiting: a member needs another one before it answers. Raises `ServerProblem`."""
        require_free_port(self.ports.raft, self.name)
        # A variable of Patroni or libpq would win over the file.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("BERTH_", "PATRONI_", "PG"))}
        environment = {**inherited, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "patroni", str(self.file)]
        if self.user is not None:
            command = [sys.executable, "-m", "berth.local.high_availability.launch", self.user, str(self.file)]
        self.process = self._spawn(command, environment=environment)

    def stop(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """End the whole cluster in order."""
        del with_signal
        self._stop_all()

    def kill_patroni(self) -> None:
        """End Patroni alone: asked to end, it would hand the primary over."""
        super().kill()

    def kill(self) -> None:
        """End Patroni and PostgreSQL at once, as the loss of the machine would."""
        super().kill()
        kill_postmaster(self.data)

    def answers(self) -> bool:
        """Whether Patroni answers."""
        return self._get("/liveness")[0] == HTTPStatus.OK

    def cluster_view(self) -> list[JsonObject]:
        """Name, role, state, timeline and lag of each member, as this member sees them; empty if it does not answer."""
        status, body = self._get("/cluster")
        if status != HTTPStatus.OK:
            return []
        try:
            members = json.loads(body).get("members", [])
        except ValueError:  # cut off
            return []
        return [entry for entry in members if isinstance(entry, dict)]

    def _get(self, path: str) -> tuple[int, bytes]:
        return self._request("GET", path)

    def _request(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports.rest, timeout=REST_SECONDS_MAX)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def change(self, settings: JsonObject) -> bool:
        """Change settings of the cluster; whether Patroni took them."""
        credentials = base64.b64encode(f"{REST_USER}:{self._passwords.rest}".encode()).decode()
        headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
        return self._request("PATCH", "/config", json.dumps(settings), headers)[0] == HTTPStatus.OK

    def reload(self) -> None:
        """Let Patroni read its configuration again. Raises `ServerProblem` if it does not run."""
        if self.process is None or self.process.poll() is not None:
            raise ServerProblem(f"{self.name} ended at start; see {self.log}")
        self.process.send_signal(signal.SIGHUP)


class SupervisedMember(SupervisedServer):
    """A member whose Patroni is started again when it dies; PostgreSQL is Patroni's to start."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self._member = member

    def answers(self) -> bool:
        """Whether Patroni answers."""
        return self._member.answers()

    def kill(self) -> None:
        """End Patroni alone: the next one takes over a PostgreSQL that runs."""
        self._member.kill_patroni()
