"""One source exhausts the open files of no process, also where the system starts it with a soft limit of 1,024."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from orchestrator.edge.counting.connection_bounds import connection_bounds
from orchestrator.settings import Settings
from tests.api.processes import public_process
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = Path(__file__).parents[3]
SOFT = 1_024
PRINT_LIMIT = """
import resource
from berth.process.limits.open_files import raise_open_files
print(raise_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limits of open files of the tests, which their children inherit, and which are restored at the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def settings(**values: int) -> Settings:
    return Settings(database_url="postgresql://absent@127.0.0.1:1/none", **values)  # type: ignore[arg-type]


def test_a_process_raises_its_soft_limit(limits: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, limits[1]))
    printed = subprocess.run([sys.executable, "-c", PRINT_LIMIT], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == [str(limits[1])] * 2


def test_every_process_raises_it() -> None:
    starting = [
        path
        for package in ("berth", "orchestrator", "worker", "outbox_relay", "node_agent")
        for path in (ROOT / package).rglob("*.py")
        if "    configure_logging()" in path.read_text()
    ]
    assert len(starting) >= 5
    assert [path for path in starting if "    raise_open_files()" not in path.read_text()] == []


def test_connections_are_what_open_files_allow(limits: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    assert connection_bounds(settings(connections_max=10), 5, "public") == (10, 5)
    assert "connections_lowered" not in capsys.readouterr().out
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, limits[1]))
    total, per_source = connection_bounds(settings(), 4_096, "public")
    assert per_source is not None
    assert 2 * total + 64 < SOFT, "two listeners leave files for the database"
    assert per_source <= total // 2, "one source leaves most to others"
    assert "connections_lowered" in capsys.readouterr().out
    assert connection_bounds(settings(), 0, "public").per_source is None


def test_one_source_does_not_exhaust_a_listener_with_few_files(
    database_url: str, tmp_path: Path, limits: tuple[int, int]
) -> None:
    """Both limits are 1,024: the process cannot raise them, lowers its bounds, and says so."""
    launcher = "tests.security.attacks.with_few_files"
    with ExitStack() as held, public_process(database_url, tmp_path, launcher=launcher) as http:
        address = (http.base_url.host, http.base_url.port or 0)
        for _ in range(SOFT):
            connection = socket.socket()
            held.enter_context(connection)
            connection.bind(("127.0.0.2", 0))
            connection.settimeout(WAIT_SECONDS_MAX)
            connection.connect(address)
        assert http.get("/api/v1/skus").status_code == 401
        with httpx.Client(base_url=http.base_url, timeout=WAIT_SECONDS_MAX) as another:
            assert another.get("/ok").status_code == 200
    lines = [json.loads(line) for line in (tmp_path / "api.log").read_text().splitlines() if line.startswith("{")]
    assert any(line["event"] == "connections_lowered" and line["listener"] == "public" for line in lines)
    assert not any("cannot accept" in line["event"] for line in lines)
