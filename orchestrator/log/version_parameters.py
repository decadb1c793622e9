"""`Berth-Version` and `min_version` of reads (docs/reference/http-api.md, "Versions of answers").

Every GET accepts them, so they are removed from the request before its endpoint sees it.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus

from starlette.datastructures import Headers

from berth.process.json_objects import JsonObject
from orchestrator.database.response_versions import ResponseVersion
from orchestrator.problems import Invalid

VERSION_HEADER: Final = b"berth-version"
MIN_VERSION: Final = "min_version"
MIN_VERSION_HEADER: Final = "Berth-Min-Version"
VERSION_MAX: Final = 2**63 - 1
OPEN_PATHS: Final = frozenset({"/ok", "/live", "/openapi.json", "/asyncapi.json"})
"""Paths without a version."""
OWN_MEANING: Final = frozenset({"/v1/status"})
"""Paths where `min_version` is a parameter of the endpoint; the header has the same meaning everywhere."""


def requested_version(scope: Any, headers: Headers) -> ResponseVersion | None:
    """Return the record of the response's version, with the version that it must include; None unless this is a read.

    Removes `min_version` from the query. Raises `Invalid` for an invalid version, or several.
    """
    if scope["method"] != "GET" or scope["path"] in OPEN_PATHS:
        return None
    requested = headers.getlist(MIN_VERSION_HEADER)
    query: bytes = scope["query_string"]
    if b"min" in query and scope["path"] not in OWN_MEANING:
        parts = query.decode("latin-1").split("&")
        named = [part for part in parts if unquote_plus(part.partition("=")[0]) == MIN_VERSION]
        requested += [value for _, value in parse_qsl("&".join(named), keep_blank_values=True)]
        scope["query_string"] = "&".join(part for part in parts if part not in named).encode("latin-1")
    if not requested:
        return ResponseVersion()
    if len(requested) > 1:
        raise _invalid("must be given at most once, in the header or in the query")
    return ResponseVersion(at_least=_version(requested[0]), is_stated=True)


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= VERSION_MAX):
        raise _invalid("must be an integer from 0 to 2^63 - 1")
    return int(text)


def _invalid(message: str) -> Invalid:
    return Invalid(f"{MIN_VERSION}: {message}", errors=[{"field": MIN_VERSION, "message": message}])


_SCHEMA: Final = {"type": "integer", "minimum": 0, "maximum": VERSION_MAX}
_MEANING: Final = "The response includes this version; waits for it, bounded, else 409 `version_not_reached`"


def describe_write(operation: JsonObject) -> None:
    """Add the header of a write's version to its successful responses in the OpenAPI document."""
    header = {
        "description": "Position in the log of the operation's last event; only if it is sequenced and known here, which"
        " it is for commits and for most replays. Otherwise see GET /api/v1/operations/{key}",
        "schema": _SCHEMA,
    }
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            response.setdefault("headers", {})["Berth-Version"] = header


def describe(operation: JsonObject, path: str) -> None:
    """Add the version's parameter and header to a GET in the OpenAPI document."""
    if path in OPEN_PATHS:
        return
    parameters = operation.setdefault("parameters", [])
    if path not in OWN_MEANING:
        parameters.append({"name": MIN_VERSION, "in": "query", "description": _MEANING, "schema": _SCHEMA})
    else:
        parameters.append({"name": MIN_VERSION_HEADER, "in": "header", "description": _MEANING, "schema": _SCHEMA})
    header = {"description": "A version whose effects the response includes", "schema": _SCHEMA, "required": True}
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            response.setdefault("headers", {})["Berth-Version"] = header
