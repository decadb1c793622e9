"""What the OpenAPI document says beyond the endpoints' own types: problem documents, and how callers are known.

Every operation can be refused in the ways of docs/reference/http-api.md, so every operation lists them; the document is checked
against the running server by the tests.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html

from berth.process.json_objects import JsonObject
from orchestrator.http.openapi_webhooks import describe_webhooks
from orchestrator.http.operation_ids import operation_id
from orchestrator.http.static_documents import StaticDocument
from orchestrator.log import version_parameters

OPENAPI_PATH: Final = "/openapi.json"
DOCS_PATH: Final = "/docs"

PROBLEM_SCHEMA: Final[JsonObject] = {
    "title": "Problem",
    "description": "RFC 9457 problem document; some codes carry further members.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "outcome", "server_time"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "outcome": {"enum": ["not_done", "in_progress", "unknown"]},
        "server_time": {"type": "string", "format": "date-time"},
        "waits_for": {"enum": ["cleanup"], "description": "Of `resource_busy`: only cleanup keeps the units"},
        "since": {"type": "string", "format": "date-time", "description": "Of `waits_for`: when the wait began"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
_DESCRIPTIONS: Final = {
    400: "The request cannot be read",
    401: "No key or token, or one that is unknown, revoked, expired or not ours",
    403: "The caller's role does not allow this",
    404: "No such object, or another tenant's",
    408: "The body did not come whole in time",
    409: "Refused by the state of things",
    410: "Its record is not kept any more",
    413: "The body is too large",
    422: "The request does not fit the schema, or names what is not there",
    429: "The principal has reached one of its limits, or too many wrong credentials came from this address",
    431: "The request line and headers are too large",
    503: "Nothing can be done now, or the outcome is unknown",
}


def _problem(status: int) -> JsonObject:
    reference = {"$ref": "#/components/schemas/Problem"}
    return {"description": _DESCRIPTIONS[status], "content": {"application/problem+json": {"schema": reference}}}


Responses = dict[int | str, dict[str, Any]]
"""What a route documents of its responses, by status: FastAPI reads classes of bodies too."""
PROBLEM_RESPONSES: Final[Responses] = {status: _problem(status) for status in _DESCRIPTIONS}

_SECURITY_SCHEMES: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, berth_<prefix>_<secret>, or an OIDC token (JWT)",
    },
    "certificate": {"type": "mutualTLS", "description": "A node's client certificate"},
}
# The quotes are not part of a key, and an empty one is none.
IDEMPOTENCY_KEY_PATTERN: Final = r'^(?!""$)[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$'
_IDEMPOTENCY_KEY_SCHEMA: Final = {
    "type": "string",
    "pattern": IDEMPOTENCY_KEY_PATTERN,
    "description": "Printable ASCII, 1 to 255 characters, quoted or bare.",
}
_INFO: Final = {
    "description": "The control plane of a GPU cloud: allocations, reservations, the log of events, billing.",
    "contact": {"name": "The operators of this installation"},
    "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
}
_SERVERS: Final = [{"url": "/", "description": "The server that returned this document"}]
_TAGS: Final = {
    "account": "The caller: principal, tenant, role and limits",
    "allocations": "What a tenant's workload runs on",
    "reservations": "Holds and confirmed windows",
    "resources": "Named sets of units",
    "catalogue": "SKUs, regions, images and availability",
    "ssh keys": "Public keys of a tenant's users",
    "api keys": "API keys of a tenant, for its admins",
    "members": "Users of the issuer that act for a tenant, and their invitations",
    "usage": "Usage lines and the balance",
    "webhooks": "Events sent to a tenant's URLs",
    "operations": "The outcome of a write, by its idempotency key",
    "log": "Versions, the feed, keys and values, retention, notifications",
    "node": "Enrolment and the API of node agents",
    "site": "Enrolment and the API of agents of sites",
    "deploy system": "The API of deploy systems",
    "health": "Health and metrics",
    "admin: tenants": "Tenants and quotas",
    "admin: balances": "Prepaid balances and payments",
    "admin: API keys": "API keys of tenants and operators",
    "admin: catalogue": "Regions, SKUs and images",
    "admin: nodes": "The fleet, its certificates and orphans",
    "admin: sites": "Sites, their agents, and the BMCs of nodes",
    "admin: resources": "Registered resources",
    "admin: allocations": "All tenants' allocations, force-release and force-cleanup",
    "audit": "The record of the tenant's actions",
    "admin: approvals": "Requests that a second operator approves (four eyes)",
    "admin: maintenance": "Maintenance windows of nodes and slots",
    "admin: audit": "The record of all actions",
    "admin: dead letters": "Events that a consumer gave up on",
    "admin: consumers": "Consumers of the log",
}
_OPEN_PATHS: Final = frozenset(
    {
        "/ok",
        "/live",
        "/asyncapi.json",
        "/api/v1/nodes/enroll",
        "/api/v1/nodes/enroll/challenge",
        "/api/v1/sites/enroll",
        "/api/v1/deploy-systems/enroll",
        "/api/v1/deploy-systems/enroll/challenge",
    }
)


def install(app: FastAPI, *, docs_ui: bool = False) -> None:
    """Complete the application's OpenAPI document (problems, security schemes, the scheme of each route), and serve it.

    `docs_ui`: serve Swagger UI as well. FastAPI would encode both for each request.
    """
    _complete_when_made(app)
    app.state.openapi_document = document = StaticDocument(lambda: _encode(app))
    app.add_route(OPENAPI_PATH, document.answer, include_in_schema=False)
    if docs_ui:
        page = get_swagger_ui_html(openapi_url=OPENAPI_PATH, title=f"{app.title} - Swagger UI").body
        app.add_route(DOCS_PATH, StaticDocument(lambda: bytes(page), "text/html").answer, include_in_schema=False)


async def prepare(app: FastAPI) -> None:
    """Encode the document that `install` serves: before requests, because that takes a second."""
    document: StaticDocument = app.state.openapi_document
    await document.prepare()


def _encode(app: FastAPI) -> bytes:
    encoded = orjson.dumps(app.openapi(), option=orjson.OPT_NON_STR_KEYS)
    app.openapi_schema = None  # many times the size of its bytes
    return encoded


def _complete_when_made(app: FastAPI) -> None:
    plain = app.openapi

    def openapi() -> JsonObject:
        if app.openapi_schema is None:
            _complete(plain())
        assert app.openapi_schema is not None, "FastAPI keeps what it generated"
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _complete(document: JsonObject) -> None:
    document["info"] |= _INFO
    document["servers"] = _SERVERS
    used = {tag for operations in document["paths"].values() for of in operations.values() for tag in of["tags"]}
    document["tags"] = [{"name": tag, "description": about} for tag, about in _TAGS.items() if tag in used]
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = PROBLEM_SCHEMA
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    if "/api/v1/webhooks" in document["paths"]:
        describe_webhooks(document)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["operationId"] = operation_id(method, path)
            operation["security"] = _security(path)
            if method == "get" and path not in _OPEN_PATHS and not path.startswith(("/node/", "/site/", "/deploy/")):
                version_parameters.describe(operation, path)
            elif any(parameter["name"] == "Idempotency-Key" for parameter in operation.get("parameters", ())):
                version_parameters.describe_write(operation)
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _schema_of(parameter)
            for status in _DESCRIPTIONS:
                operation["responses"][str(status)] = _problem(status)
    required = {name for path in document["paths"] for scheme in _security(path) for name in scheme}
    components["securitySchemes"] = {name: scheme for name, scheme in _SECURITY_SCHEMES.items() if name in required}


def _schema_of(parameter: JsonObject) -> JsonObject:
    """The parameter's schema; outside a body there is no null, only absence."""
    schema: JsonObject = parameter["schema"]
    if parameter["name"].lower() == "idempotency-key":
        return _IDEMPOTENCY_KEY_SCHEMA
    if "anyOf" not in schema:
        return schema
    real = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**real[0], **rest} if len(real) == 1 else {**rest, "anyOf": real}


def _security(path: str) -> list[dict[str, list[str]]]:
    if path in _OPEN_PATHS:
        return []
    return [{"certificate": []}] if path.startswith(("/node/", "/deploy/")) else [{"bearer": []}]
