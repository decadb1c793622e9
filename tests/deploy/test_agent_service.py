"""The agent's systemd unit and its example environment."""

from __future__ import annotations

import configparser

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
