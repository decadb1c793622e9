"""The agent's systemd unit and its example environment."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.deployment import DEPLOY, SETTINGS, environment_file, known_variables, required_variables

ENVIRONMENT = environment_file(DEPLOY / "agent.env")


def _unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",), strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "berth-agent.service")
    return unit


def test_it_starts_the_agent_and_starts_it_again() -> None:
    service = _unit()["Service"]
    assert service["ExecStart"].endswith("python -m node_agent")
    assert service["Restart"] == "always"
    assert service["EnvironmentFile"] == "/etc/berth/agent.env"
    assert service["User"] not in ("", "root")


def test_guests_outlive_a_crash_of_the_agent() -> None:
    assert _unit()["Service"]["KillMode"] == "process"


def test_its_state_is_where_systemd_makes_the_directory() -> None:
    service = _unit()["Service"]
    assert ENVIRONMENT["BERTH_AGENT_STATE_DIR"] == f"/var/lib/{service['StateDirectory']}"
    assert service["StateDirectoryMode"] == "0700"


def test_every_variable_is_a_setting_and_none_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENVIRONMENT.keys() <= known_variables(SETTINGS["agent"])
    assert required_variables(SETTINGS["agent"]) <= ENVIRONMENT.keys()
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    SETTINGS["agent"]()


def _installed(directory: Path, *, drop_in: bool) -> Path:
    """The unit as a node has it. The program is one that is there: `verify` looks for it."""
    unit = directory / "berth-agent.service"
    unit.write_text((DEPLOY / unit.name).read_text().replace("/opt/berth/bin/python", "/bin/true"))
    if drop_in:
        below = directory / "berth-agent.service.d"
        below.mkdir()
        shutil.copy(DEPLOY / "berth-agent-libvirt.conf", below / "libvirt.conf")
    return unit


def _analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("drop_in", [False, True], ids=["sandbox", "libvirt"])
def test_systemd_takes_the_unit_without_a_complaint(tmp_path: Path, drop_in: bool) -> None:
    done = _analyze("verify", "--man=no", _installed(tmp_path, drop_in=drop_in))
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_complains_of_a_setting_that_it_does_not_know(tmp_path: Path) -> None:
    """The control."""
    unit = _installed(tmp_path, drop_in=True)
    unit.write_text(unit.read_text().replace("RestrictRealtime", "RestrictRealtimes"))
    assert "RestrictRealtimes" in _analyze("verify", "--man=no", unit).stderr


@pytest.mark.parametrize(("drop_in", "exposure_max"), [(False, 3.4), (True, 4.0)], ids=["sandbox", "libvirt"])
def test_the_exposure_of_the_service_is_bounded(tmp_path: Path, drop_in: bool, exposure_max: float) -> None:
    """The scale of `systemd-analyze security`: 0 is none, 10 everything; the unit as it was had 4.5."""
    done = _analyze("security", "--offline=true", "--no-pager", _installed(tmp_path, drop_in=drop_in))
    found = re.search(r"exposure level for berth-agent.service: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= exposure_max


def test_the_drop_in_gives_two_capabilities_and_one_device() -> None:
    lines = (DEPLOY / "berth-agent-libvirt.conf").read_text().splitlines()
    given = {name: value for name, _, value in (line.partition("=") for line in lines) if value}
    assert given["AmbientCapabilities"].split() == ["CAP_DAC_OVERRIDE", "CAP_KILL"]
    assert given["CapabilityBoundingSet"] == given["AmbientCapabilities"]
    assert (given["DevicePolicy"], given["DeviceAllow"]) == ("closed", "/dev/kvm rw")
    assert not {"User", "NoNewPrivileges", "ProtectSystem", "KillMode"} & given.keys(), "these stay as in the unit"
    assert [line for line in lines if line.startswith("DeviceAllow=")] == ["DeviceAllow=/dev/kvm rw"]
