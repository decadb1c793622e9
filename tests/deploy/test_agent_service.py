"""The systemd units of a node, and their example environment."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from node_agent.drivers.removal import END_SECONDS_MAX
from tests.deploy.deployment import DEPLOY, SETTINGS, environment_file, known_variables, required_variables

UNITS = ("berth-agent.service", "berth-guests.service")
ENVIRONMENT = environment_file(DEPLOY / "agent.env")


def _unit(name: str = "berth-agent.service") -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",), strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / name)
    return unit


def test_it_starts_the_agent_and_starts_it_again() -> None:
    service = _unit()["Service"]
    assert service["ExecStart"].endswith("python -m node_agent")
    assert service["Restart"] == "always"
    assert service["EnvironmentFile"] == "/etc/berth/agent.env"
    assert service["User"] not in ("", "root")


def test_guests_outlive_the_end_of_the_agent() -> None:
    unit = _unit()
    assert unit["Service"]["KillMode"] == "process"
    assert "ExecStop" not in unit["Service"]
    assert SETTINGS["agent"].model_fields["agent_ends_guests"].default is False
    assert "BERTH_AGENT_ENDS_GUESTS" not in ENVIRONMENT


def test_guests_end_with_the_host_after_the_agent_and_before_what_they_need() -> None:
    agent, guests = _unit(), _unit("berth-guests.service")
    assert "berth-guests.service" in agent["Unit"]["Wants"].split(), "started with the agent"
    assert not {"Requires", "BindsTo", "PartOf"} & {*agent["Unit"], *guests["Unit"]}, "neither stops the other"
    # systemd stops in the reverse order of the start.
    assert "berth-agent.service" in guests["Unit"]["Before"].split()
    after = guests["Unit"]["After"].split()
    assert {"libvirtd.service", "virtqemud.service", "libvirt-guests.service", "network-online.target"} <= set(after)
    # libvirt puts the scope of each QEMU before this target: systemd would end them at once.
    assert "virt-guest-shutdown.target" in after
    assert guests["Unit"]["Wants"] == "virt-guest-shutdown.target"
    assert guests["Unit"]["RefuseManualStop"] == "yes"
    assert guests["Service"]["RemainAfterExit"] == "yes"
    assert guests["Service"]["ExecStop"] == agent["Service"]["ExecStart"] + " --end-guests"
    grace = SETTINGS["agent"].model_fields["agent_stop_seconds"].default
    assert float(guests["Service"]["TimeoutStopSec"]) >= grace + END_SECONDS_MAX
    for name in ("User", "Group", "EnvironmentFile", "StateDirectory", "StateDirectoryMode", "UMask"):
        assert guests["Service"][name] == agent["Service"][name]


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
    """The units as a node has them; the agent's. The program is one that is there: `verify` looks for it."""
    for name in UNITS:
        unit = directory / name
        unit.write_text((DEPLOY / name).read_text().replace("/opt/berth/bin/python", "/bin/true"))
        if drop_in:
            below = directory / f"{name}.d"
            below.mkdir()
            shutil.copy(DEPLOY / "berth-agent-libvirt.conf", below / "libvirt.conf")
    return directory / UNITS[0]


def _analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("drop_in", [False, True], ids=["sandbox", "libvirt"])
def test_systemd_takes_the_units_without_a_complaint(tmp_path: Path, drop_in: bool) -> None:
    unit = _installed(tmp_path, drop_in=drop_in)
    done = _analyze("verify", "--man=no", unit, unit.with_name(UNITS[1]))
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_complains_of_a_setting_that_it_does_not_know(tmp_path: Path) -> None:
    """The control."""
    unit = _installed(tmp_path, drop_in=True)
    unit.write_text(unit.read_text().replace("RestrictRealtime", "RestrictRealtimes"))
    assert "RestrictRealtimes" in _analyze("verify", "--man=no", unit).stderr


@pytest.mark.parametrize(("drop_in", "exposure_max"), [(False, 3.4), (True, 4.0)], ids=["sandbox", "libvirt"])
def test_the_exposure_of_the_service_is_bounded(tmp_path: Path, drop_in: bool, exposure_max: float) -> None:
    """The scale of `systemd-analyze security`: 0 is none, 10 everything; the unit as it was had 4.5."""
    unit = _installed(tmp_path, drop_in=drop_in)
    for name in UNITS:
        done = _analyze("security", "--offline=true", "--no-pager", unit.with_name(name))
        found = re.search(rf"exposure level for {name}: ([0-9.]+)", done.stdout)
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
