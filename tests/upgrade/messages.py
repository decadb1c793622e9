"""What messages of the last release and of the present code promise, as JSON schemas, and how they differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]

_PRINT_SCHEMAS = """
import json
from importlib import import_module
from node_agent import protocol
from orchestrator.log.event_types import EVENT_KINDS
from pydantic import BaseModel
reports = [import_module(f"node_agent.wire.{name}") for name in (
    "topology", "health", "burn_in", "gpu_reset", "maintenance", "console",
)]
models = {
    name: model for module in (*reports, protocol) for name, model in vars(module).items()
    if isinstance(model, type) and issubclass(model, BaseModel)
}
print(json.dumps({
    "events": {str(event_type): kind.schema() for event_type, kind in EVENT_KINDS.items()},
    "messages": {
        name: {**model.model_json_schema(), "of_protocol": hasattr(protocol, name)}
        for name, model in models.items() if model.model_fields
    },
}))
"""


def schemas_of(environment: Mapping[str, str]) -> dict[str, dict[str, Schema]]:
    """The schemas of events and of messages with nodes that the code of this environment has."""
    command = [sys.executable, "-c", _PRINT_SCHEMAS]
    ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Schema]] = json.loads(ran.stdout)
    return found


def unread(sent: Schema, read: Schema, at: str = "") -> Iterator[str]:
    """Why a reader of the schema `read` may refuse a message of the schema `sent`: what it demands, forbids, or does not know."""
    sent_root, read_root = sent, read
    yield from _unread(sent, read, sent_root, read_root, at)


def closed(schema: Any, at: str) -> Iterator[str]:
    """Each object of a schema that refuses members which it does not know."""
    if isinstance(schema, list):
        schema = dict(enumerate(schema))
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is False:
            yield at
        for name, member in schema.items():
            yield from closed(member, f"{at}/{name}")


def _unread(sent: Schema, read: Schema, sent_root: Schema, read_root: Schema, at: str) -> Iterator[str]:
    sent, read = _resolved(sent, sent_root), _resolved(read, read_root)
    for name in set(read.get("required", ())) - set(sent.get("required", ())):
        yield f"{at}/{name} is demanded and may be missing"
    properties = sent.get("properties", {})
    for name, schema in properties.items():
        known = read.get("properties", {}).get(name)
        if known is not None:
            yield from _unread(schema, known, sent_root, read_root, f"{at}/{name}")
        elif read.get("additionalProperties") is False:
            yield f"{at}/{name} is not known"
    if "items" in sent and "items" in read:
        yield from _unread(sent["items"], read["items"], sent_root, read_root, f"{at}[]")
    for word in sorted(_values(sent, sent_root) - _values(read, read_root)):
        if _values(read, read_root):
            yield f"{at}: {word} is not known"


def _resolved(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    return root["$defs"][reference.rpartition("/")[2]] if reference else schema


def _values(schema: Schema, root: Schema) -> set[str]:
    """The values or types that it names; none if it names none."""
    schema = _resolved(schema, root)
    if "anyOf" in schema:
        return set().union(*(_values(member, root) for member in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return {json.dumps(value) for value in schema.get("enum", [schema.get("const")])}
    kind = schema.get("type", [])
    return set(kind) if isinstance(kind, list) else {kind}
