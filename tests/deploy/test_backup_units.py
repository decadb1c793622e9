"""The backup host's systemd units and settings, and which role may replicate the deployed PostgreSQL."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from typer.main import get_command

from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.replication import ask
from berth.cli.main import app
from berth.local.servers import LocalPostgres, free_port, new_password
from tests.deploy import deployment
from tests.deploy.deployment import DEPLOY, SETTINGS, environment_file, known_variables

UNITS = DEPLOY / "backup"
ENVIRONMENT = environment_file(UNITS / "backup.env")
SERVICES = sorted(UNITS.glob("*.service"))
TIMERS = sorted(UNITS.glob("*.timer"), key=lambda path: path.stem)


def read(path: Path) -> configparser.ConfigParser:
    """A unit."""
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",), strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    return unit


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_service_runs_a_command_that_exists_and_is_not_root(path: Path) -> None:
    service = read(path)["Service"]
    _, *command = service["ExecStart"].split()
    group = get_command(app)
    for word in command:
        group = group.commands[word]  # type: ignore[attr-defined]
    assert service["User"] not in ("", "root")
    assert service["EnvironmentFile"] == "/etc/berth/backup.env"
    assert ENVIRONMENT["BERTH_BACKUP_DIR"].startswith(f"/var/lib/{service['StateDirectory']}/")


def test_every_timer_has_its_service_and_runs_often_enough_for_doctor() -> None:
    assert [path.stem for path in TIMERS] == ["berth-backup", "berth-backup-verify"]
    for path in TIMERS:
        assert path.with_suffix(".service") in SERVICES
        assert read(path)["Timer"]["Persistent"] == "yes", "a missed one is made up for"
    assert read(TIMERS[0])["Timer"]["OnCalendar"].startswith("*-*-* "), "daily"
    assert read(UNITS / "berth-backup-stream.service")["Service"]["Restart"] == "always"


def test_every_variable_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENVIRONMENT.keys() <= known_variables(SETTINGS["operator"])
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    SETTINGS["operator"]()


def test_systemd_takes_the_units_without_a_complaint(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    for path in (*SERVICES, *TIMERS):
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/berth/bin/berth", "/bin/true"))
    installed = map(str, sorted(tmp_path.iterdir()))
    command = ["systemd-analyze", "verify", "--man=no", *installed]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_postgresql_keeps_a_bounded_amount_for_a_dead_stream() -> None:
    command = "\n".join(deployment.services()["postgres"]["command"])
    assert "--max_slot_wal_keep_size=16GB" in command
    assert "--hba_file=/etc/postgresql/pg_hba.conf" in command
    assert "./backup/pg_hba.conf:/etc/postgresql/pg_hba.conf:ro" in deployment.services()["postgres"]["volumes"]


@pytest.mark.parametrize("kind", ["hostssl", "host"])
def test_only_the_role_of_backups_replicates_and_only_over_tls(data_directory: Path, kind: str) -> None:
    """The deployed file, on a server without TLS: `host` instead of `hostssl` is what TLS would allow."""
    data_directory.mkdir(mode=0o755)
    hba = data_directory / "pg_hba.conf"
    hba.write_text((UNITS / "pg_hba.conf").read_text().replace("hostssl", kind))
    server = LocalPostgres(data_directory / "data", free_port(), new_password(), {"hba_file": str(hba), "fsync": "off"})
    server.start()
    try:
        url = server.make_backup_role("x")
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("create role other login replication password 'x'")
        with pytest.raises(BackupProblem) as raised:
            ask(url.replace("berth_backup", "other"))
        assert raised.value.code == "backup_not_permitted"
        if kind == "host":
            assert ask(url).flushed > 0
            return
        with pytest.raises(BackupProblem) as raised:
            ask(url)
        assert raised.value.code == "backup_not_permitted"
    finally:
        server.stop()
