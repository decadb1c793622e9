"""Schemas of single members of the data of events (JSON Schema)."""

from __future__ import annotations

from collections.abc import Mapping

from berth.process.json_objects import JsonMapping

Schema = JsonMapping

ID: Schema = {"type": "string", "format": "uuid"}
TIME: Schema = {"type": "string", "format": "date-time"}
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
AMOUNT: Schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
FENCE: Schema = {
    **WHOLE,
    "description": "of two events about a claim, the one with the higher fence is newer",
}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}
IDS: Schema = {"type": "array", "items": ID}
OBJECT: Schema = {"type": "object"}
SLOTS: Schema = {"type": "array", "items": WHOLE}
UNITS: Schema = {
    "type": "array",
    "items": {"type": "array", "items": WHOLE, "minItems": 2, "maxItems": 2},
    "description": "ranges of units, [first, last_exclusive] each",
}


def nullable(schema: Schema) -> Schema:
    """Return the schema with null allowed."""
    return {**schema, "type": [schema["type"], "null"]}


CERTIFICATE: Mapping[str, Schema] = {
    "epoch": WHOLE, "serial": TEXT, "predecessor": nullable(TEXT), "key_sha256": TEXT, "authority_key_sha256": nullable(TEXT),
    "not_before": TIME, "not_after": TIME, "pem": nullable(TEXT),
}  # fmt: skip
"""What is recorded of a certificate of a node or of an agent of a site."""
