"""The client has a call for every path of the API, and none for a path that is not there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any
from uuid import UUID

import httpx
import pytest

from berth.client.calls import (
    administration,
    allocations,
    api_keys,
    approvals,
    balances,
    catalogue,
    consoles,
    faults,
    firmware,
    hardware,
    keyvalue,
    log,
    maintenance,
    operations,
    orphans,
    pieces,
    pools,
    reservations,
    retention,
    sites,
    subscriptions,
    tenants,
    usage,
    webhooks,
)
from berth.client.calls.call import Call
from berth.client.hardware.images import ImageStatement
from berth.client.hardware.sites import SealedBmcPassword
from berth.client.sync_client import Client
from berth.local.servers import LocalPostgres
from tests.api.processes import public_process

MODULES: tuple[ModuleType, ...] = (
    administration,
    allocations,
    api_keys,
    approvals,
    balances,
    catalogue,
    consoles,
    faults,
    firmware,
    hardware,
    keyvalue,
    log,
    maintenance,
    subscriptions,
    operations,
    orphans,
    pieces,
    pools,
    reservations,
    retention,
    sites,
    tenants,
    usage,
    webhooks,
)
NOT_THE_CLIENTS = re.compile(
    r"/(ok|live|metrics|openapi\.json|asyncapi\.json|v1/subscribe|api/v1/(nodes|sites|deploy-systems)/enroll)"
)
"""Health, the feed, which is no call but `events`, and what agents call."""


def _value(parameter: inspect.Parameter) -> Any:
    kind = str(parameter.annotation)
    if parameter.name.endswith("ids") or kind.startswith("Sequence"):
        return []
    if "UUID" in kind:
        return UUID(int=7)
    if "datetime" in kind:
        return datetime(2030, 1, 1, tzinfo=UTC)
    if "bytes" in kind:
        return b"key"
    if "SealedBmcPassword" in kind:
        return SealedBmcPassword(1, {UUID(int=7): "text"})
    if "ImageStatement" in kind:
        return ImageStatement()
    if "Mapping" in kind:
        return {"a": "b"}
    if "int" in kind.split(" | "):
        return 1
    return True if "bool" in kind else "active"


def calls() -> dict[str, Call[Any]]:
    """Every call, with every parameter given, by the name of its function."""
    makers: dict[str, Callable[..., Call[Any]]] = {
        name: maker
        for module in MODULES
        for name, maker in vars(module).items()
        if inspect.isfunction(maker) and maker.__module__ == module.__name__ and not name.startswith("_")
    }
    made = {}
    for name, maker in makers.items():
        if not str(inspect.signature(maker).return_annotation).startswith("Call["):
            continue
        parameters = inspect.signature(maker).parameters.values()
        positional = [_value(p) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        named = {p.name: _value(p) for p in parameters if p.kind is p.KEYWORD_ONLY}
        made[name] = maker(*positional, **named)
    return made


CALLS = calls()


@pytest.fixture(scope="module")
def paths(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The paths of a running API's OpenAPI document."""
    url = postgres_server.url(migrated_template)
    with public_process(url, tmp_path_factory.mktemp("paths")) as http:
        return dict(httpx.get(f"{http.base_url}/openapi.json", timeout=60).json()["paths"])


def _place(call: Call[Any], paths: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Where a call goes; a path without parameters goes before one with."""
    for path in sorted(paths, key=lambda path: path.count("{")):
        pattern = re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path))
        if re.fullmatch(pattern, call.path) and call.method.lower() in paths[path]:
            return path, paths[path][call.method.lower()]
    return None


def test_every_path_has_a_call(paths: dict[str, Any]) -> None:
    called = {(call.method.lower(), place[0]) for call in CALLS.values() if (place := _place(call, paths)) is not None}
    there = {(method, path) for path, methods in paths.items() for method in methods if not NOT_THE_CLIENTS.match(path)}
    assert called == there


def test_every_call_is_of_a_path_with_its_parameters(paths: dict[str, Any]) -> None:
    for name, call in CALLS.items():
        place = _place(call, paths)
        assert place is not None, f"{name}: {call.method} {call.path}"
        known = {parameter["name"] for parameter in place[1].get("parameters", ()) if parameter["in"] == "query"}
        assert call.params.keys() <= known, name


def test_every_call_is_a_method() -> None:
    methods = {name for kind in Client.__mro__ for name, member in vars(kind).items() if callable(member)}
    missing = {name for name in CALLS if name not in methods and name.replace("list_", "get_") not in methods}
    assert missing == set()
