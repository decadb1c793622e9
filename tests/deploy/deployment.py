"""The deployment's files as the tests see them: the compose file with its variables filled in, services by process."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic_settings import BaseSettings

import berth.cli.settings
import node_agent.settings
import orchestrator.nodes.issuer_settings
import orchestrator.settings
import outbox_relay.settings
import worker.audit_stream.settings
import worker.settings
import worker.webhooks.settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
LISTENER_NAMES = ("nodes.example.org", "203.0.113.7", "2001:db8::7")

SETTINGS: dict[str, type[BaseSettings]] = {
    "orchestrator": orchestrator.settings.Settings,
    "issuer": orchestrator.nodes.issuer_settings.IssuerSettings,
    "relay": outbox_relay.settings.Settings,
    "worker": worker.settings.Settings,
    "webhooks": worker.webhooks.settings.WebhookSettings,
    "audit-stream": worker.audit_stream.settings.AuditStreamSettings,
    "agent": node_agent.settings.Settings,
    "operator": berth.cli.settings.Settings,
}
VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}")


def example_environment() -> dict[str, str]:
    """What deploy/env.example says."""
    return environment_file(DEPLOY / "env.example")


def environment_file(path: Path) -> dict[str, str]:
    """NAME=value lines; comments and empty lines are left out."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def fill_in(value: Any, variables: dict[str, str]) -> Any:
    """`${NAME:?}` and `${NAME:-default}` replaced, as Compose does; KeyError for a required one that is missing."""

    def replace(match: re.Match[str]) -> str:
        if match["kind"] == "-":
            return variables.get(match["name"], match["text"])
        return variables[match["name"]]

    if isinstance(value, str):
        return VARIABLE.sub(replace, value).replace("$$", "$")
    if isinstance(value, list):
        return [fill_in(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: fill_in(item, variables) for key, item in value.items()}
    return value


@lru_cache
def raw_compose() -> dict[str, Any]:
    """deploy/compose.yaml with its YAML anchors and merges resolved."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


@lru_cache
def compose() -> dict[str, Any]:
    """deploy/compose.yaml with the variables of deploy/env.example."""
    filled: dict[str, Any] = fill_in(raw_compose(), example_environment())
    return filled


def services() -> dict[str, dict[str, Any]]:
    """Every service by name."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def our_services() -> dict[str, dict[str, Any]]:
    """The services whose image is built here."""
    return {name: service for name, service in services().items() if "build" in service}


def target(service: dict[str, Any]) -> str:
    """The Dockerfile's target that a service of ours runs; it names the process."""
    name: str = service["build"]["target"]
    return name


def process(service: dict[str, Any]) -> str:
    """The process that a service of ours runs, as in `SETTINGS`: the issuer shares the orchestrator's target, the webhook
    sender and the audit streamer the worker's.
    """
    command = service.get("command", ())
    for option, name in (("issuer", "issuer"), ("--webhooks", "webhooks"), ("--audit-stream", "audit-stream")):
        if option in command:
            return name
    return target(service)


def mounted_secrets(service: dict[str, Any]) -> dict[str, str]:
    """Path inside the container -> name of the secret."""
    mounted = {}
    for entry in service.get("secrets", []):
        source = entry if isinstance(entry, str) else entry["source"]
        inside = source if isinstance(entry, str) else entry.get("target", source)
        mounted[inside if inside.startswith("/") else f"/run/secrets/{inside}"] = source
    return mounted


def make_secrets(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run deploy/make-secrets."""
    command = [str(DEPLOY / "make-secrets"), str(directory), *LISTENER_NAMES]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def secret_file(name: str, directory: Path) -> Path:
    """The file of a secret, where make-secrets wrote into `directory` instead of deploy/secrets."""
    declared = Path(compose()["secrets"][name]["file"])
    assert declared.parent == Path("secrets"), f"{name} is not a file of deploy/secrets"
    return directory / declared.name


def settings_variables(service: dict[str, Any], directory: Path) -> dict[str, str]:
    """The BERTH_ variables that a service's process sees: its environment and its secrets, with real paths."""
    mounted = mounted_secrets(service)
    variables = {}
    for name, value in service.get("environment", {}).items():
        variables[name] = str(secret_file(mounted[value], directory)) if value in mounted else value
    for inside, secret in mounted.items():
        if Path(inside).name.startswith("BERTH_"):
            variables[Path(inside).name] = secret_file(secret, directory).read_text().strip()
    return {name: value for name, value in variables.items() if name.startswith("BERTH_")}


def known_variables(settings: type[BaseSettings]) -> set[str]:
    """Every variable that these settings read; a group of settings has its own names."""
    found = set()
    for name, field in settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseSettings):
            found |= known_variables(kind)
        else:
            found.add(f"{settings.model_config['env_prefix']}{name}".upper())
    return found


def required_variables(settings: type[BaseSettings]) -> set[str]:
    """Those without a default."""
    return {f"BERTH_{name}".upper() for name, field in settings.model_fields.items() if field.is_required()}
