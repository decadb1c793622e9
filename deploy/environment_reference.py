"""Writes docs/reference/configuration.md from the settings of every process: `python deploy/environment_reference.py`.

The page says nothing that the `Settings` classes do not say, so it cannot be wrong about them. With `--check` nothing
is written and the exit status is 1 if the page is not what would be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "configuration.md"

HEAD = """\
# Configuration

Every setting is an environment variable, read once when a process starts. Unknown `BERTH_` variables are ignored; a
missing or unusable one ends the process with one sentence that names it. Durations are seconds, sizes bytes. Files are
PEM unless their meaning says otherwise. Written by `deploy/environment_reference.py` from the settings themselves; a
test keeps this page equal to them.

A setting that several processes have means the same in each: give all of them the same value. Containers read a secret
such as `BERTH_DATABASE_URL` from the file `/run/secrets/BERTH_DATABASE_URL` where there is one (`docs/how-to/deploy.md`).
"""
UNITS = {
    "seconds": "seconds", "bytes": "bytes", "port": "port", "file": "path", "dir": "path", "url": "URL",
    "address": "host:port", "host": "address", "timeout": "seconds",
}  # fmt: skip


def processes() -> list[tuple[str, str, type[BaseSettings]]]:
    """Title, how it is started, and settings of each process."""
    from berth.cli.settings import Settings as CommandSettings
    from node_agent.settings import Settings as AgentSettings
    from orchestrator.nodes.issuer_settings import IssuerSettings
    from orchestrator.operations.gate_settings import GateSettings
    from orchestrator.settings import Settings as OrchestratorSettings
    from outbox_relay.settings import Settings as RelaySettings
    from worker.audit_stream.settings import AuditStreamSettings
    from worker.settings import Settings as WorkerSettings
    from worker.webhooks.settings import WebhookSettings

    return [
        ("Orchestrator", "python -m orchestrator --listen public|node|both", OrchestratorSettings),
        ("Orchestrator: the idempotency gate (decision 0014)", "python -m orchestrator", GateSettings),
        ("Issuer: signs the certificates of nodes", "python -m orchestrator --listen issuer", IssuerSettings),
        ("Worker", "python -m worker", WorkerSettings),
        ("Webhook sender", "python -m worker --webhooks", WebhookSettings),
        ("Audit streamer", "python -m worker --audit-stream", AuditStreamSettings),
        ("Relay", "python -m outbox_relay", RelaySettings),
        ("Node agent", "python -m node_agent", AgentSettings),
        ("The `berth` command and the local stack", "berth", CommandSettings),
    ]


def variable(name: str, prefix: str = "BERTH_") -> str:
    """The environment variable of a setting."""
    return f"{prefix}{name}".upper()


def _unit(name: str, field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(field.annotation))
    words = [word for word in name.split("_") if word not in ("max", "min", "first", "last")]
    return UNITS.get(words[-1], "number" if field.annotation in (int, float, int | None, float | None) else "text")


def _bounds(field: FieldInfo) -> str:
    low = high = ""
    for rule in field.metadata:
        match rule:
            case annotated_types.Ge(ge=limit):
                low = f"from {_number(limit)}"
            case annotated_types.Gt(gt=limit):
                low = f"over {_number(limit)}"
            case annotated_types.Le(le=limit):
                high = f"to {_number(limit)}"
            case annotated_types.Lt(lt=limit):
                high = f"under {_number(limit)}"
    return " ".join(part for part in (low, high) if part)


def _number(value: Any) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.default
    if value is None:
        return "-"
    return f"`{_number(value).replace(',', '')}`" if isinstance(value, int | float) else f"`{value}`"


def _rows(settings: type[BaseSettings]) -> Iterator[str]:
    for name, field in settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseSettings):
            continue  # a group of settings with a separate table
        assert field.description, f"{settings.__module__}.{name} has no description"
        meaning = field.description.replace("|", "\\|")
        cells = (
            f"`{variable(name, settings.model_config['env_prefix'])}`",
            _default(field),
            _unit(name, field),
            _bounds(field),
            meaning,
        )
        yield "| " + " | ".join(cells) + " |"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, command, settings in processes():
        parts.append(
            f"\n## {title}\n\n`{command}`\n\n| variable | default | unit | bounds | meaning |\n|---|---|---|---|---|\n"
        )
        parts.append("\n".join(_rows(settings)) + "\n")
    return "".join(parts)


def main() -> int:
    """Write the page, or with `--check` only compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 if the page is not up to date"
    )
    options = parser.parse_args()
    if options.check:
        return 0 if PAGE.exists() and PAGE.read_text() == page() else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
