"""Nouns import each other along a short, acyclic list; pure modules and tables of any noun are free for all."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

from tests.architecture.code_base import nouns
from tests.architecture.measures import tracked
from tests.architecture.source_modules import ROOT, modules

# Each noun names only nouns above it, so that there is no cycle.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "archive": (),
    "operations": (),
    "audit": ("operations",),
    "log": ("audit", "operations"),
    "tenants": ("audit", "log", "operations"),
    "catalogue": ("audit", "operations"),
    "tasks": ("operations",),
    "placement": ("catalogue", "operations", "tenants"),
    "restores": ("operations",),
    "reservations": ("audit", "catalogue", "log", "operations", "placement", "restores", "tenants"),
    "wipes": (),
    "networks": ("operations",),
    "allocations": (
        "archive",
        "audit",
        "catalogue",
        "log",
        "networks",
        "operations",
        "placement",
        "reservations",
        "restores",
        "tasks",
        "wipes",
    ),
    "approvals": ("allocations", "audit", "log", "operations", "tenants"),
    "maintenance": ("audit", "catalogue", "log", "operations", "placement"),
    "nodes": ("allocations", "audit", "catalogue", "log", "maintenance", "networks", "operations", "tasks"),
    "sites": ("allocations", "audit", "catalogue", "log", "networks", "nodes", "operations", "tasks", "tenants"),
    "consoles": ("audit", "operations", "sites", "tasks"),
    "billing": ("allocations", "audit", "log", "operations", "tenants"),
    "keyvalue": ("log", "operations"),
    "notifications": ("audit", "log", "operations"),
    "webhooks": ("audit", "log", "operations"),
}
# What the processes of `worker` share: each may import it.
SHARED_BY_PROCESSES = {"health", "problems", "startup", "supervision", "sweepers"}
# A leaf has no SQL and imports only leaves of other nouns.
LEAF = re.compile(
    r"orchestrator\.[a-z]+\.(states|rules|refusals|outcomes|tables|failures|waits|subject|principals|roles|required_roles|shapes|events|event_types"
    r"|event_messages|orphan_states|resource_names|admission|earliest|inventory|ranking|windows|signing)"
)
# Endpoints and what they serve are above every noun: they call the commands of any, and only the edge imports them.
ENDPOINT = re.compile(r"orchestrator\.[a-z]+\.(\w+_)?(endpoints|schemas|identity|sockets)")


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules of the orchestrator that a module imports; of `from package import name` both spellings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("orchestrator."):
            known = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in known if name in trees())
            if any(name not in trees() for name in known):
                yield node.module


def dotted(path: str) -> str:
    """Dotted name of a module."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Every module of the orchestrator by its dotted name."""
    return {dotted(path): tree for path, tree in modules("orchestrator")}


@functools.cache
def all_imports() -> list[tuple[str, str]]:
    """Each module of the orchestrator with each of the orchestrator's that it imports."""
    return [(name, other) for name, tree in trees().items() for other in sorted(set(imported(tree)))]


def noun_of(module: str) -> str:
    """The folder below `orchestrator`."""
    return module.split(".")[1] if "." in module else ""


def edges(imports: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Which nouns each noun imports, beside leaves, by modules that are no endpoints."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module, other in imports:
        own, noun = noun_of(module), noun_of(other)
        between = own != noun and own in MAY_IMPORT and noun in MAY_IMPORT
        if between and not LEAF.fullmatch(other) and not ENDPOINT.fullmatch(module):
            found[own].add(noun)
    return found


def test_nouns_import_each_other_along_the_list() -> None:
    found = edges(all_imports())
    assert {noun: tuple(sorted(found[noun])) for noun in MAY_IMPORT} == MAY_IMPORT


def test_the_list_has_no_cycle() -> None:
    above: set[str] = set()
    for noun, others in MAY_IMPORT.items():
        assert set(others) <= above, noun
        above.add(noun)


def test_every_folder_beside_the_layers_is_a_noun() -> None:
    assert nouns() == set(MAY_IMPORT)


def contract(name: str) -> dict[str, set[str]]:
    """The lists of modules of an import contract."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [one for one in settings if one["name"] == name]
    return {key: set(found[key]) for key in ("source_modules", "forbidden_modules")}


def parts(package: str) -> set[str]:
    """The modules and folders of a package, but its entry."""
    paths = [path.relative_to(ROOT / package).parts for path in tracked(f"{package}/*.py")]
    return {path[0].removesuffix(".py") for path in paths} - {"__init__", "__main__"}


def test_no_part_of_the_orchestrator_is_missing_below_the_edge() -> None:
    """The contract names each noun, and what is beside them."""
    above = {"edge", "app", "verification"}
    assert contract("Nothing in a noun imports the edge, the application or the checks") == {
        "source_modules": {f"orchestrator.{part}" for part in parts("orchestrator") - above},
        "forbidden_modules": {f"orchestrator.{part}" for part in above},
    }


@pytest.mark.parametrize(
    ("name", "own", "libraries"),
    [
        ("The webhook sender reaches neither Temporal nor NATS nor the worker", "webhooks", {"temporalio", "nats"}),
        ("The audit streamer reaches neither Temporal nor the worker", "audit_stream", {"temporalio"}),
    ],
)
def test_no_part_of_the_worker_is_missing_in_a_contract(name: str, own: str, libraries: set[str]) -> None:
    assert contract(name) == {
        "source_modules": {f"worker.{own}"},
        "forbidden_modules": libraries | {f"worker.{part}" for part in parts("worker") - SHARED_BY_PROCESSES - {own}},
    }


def test_no_part_of_the_worker_may_send_webhooks() -> None:
    assert contract("The worker sends no webhooks") == {
        "source_modules": {f"worker.{part}" for part in parts("worker") - {"webhooks"}},
        "forbidden_modules": {"worker.webhooks"},
    }


def test_leaves_import_only_leaves_of_other_nouns() -> None:
    assert [
        (module, other)
        for module, other in all_imports()
        if LEAF.fullmatch(module)
        and noun_of(other) in MAY_IMPORT
        and noun_of(other) != noun_of(module)
        and not LEAF.fullmatch(other)
    ] == []


def test_endpoints_are_imported_by_endpoints_and_the_edge_alone() -> None:
    found = {
        (module, other)
        for module, other in all_imports()
        if ENDPOINT.fullmatch(other)
        and not ENDPOINT.fullmatch(module)
        and noun_of(module) not in ("edge", "app", "http")
    }
    assert found == set()


def test_the_database_imports_only_leaves_of_nouns() -> None:
    found = [
        (module, other)
        for module, other in all_imports()
        if noun_of(module) == "database" and noun_of(other) in MAY_IMPORT and not LEAF.fullmatch(other)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "other", "found"),
    [
        ("orchestrator.tasks.store.tasks", "orchestrator.allocations.store.advance", {"tasks": {"allocations"}}),
        ("orchestrator.tasks.store.tasks", "orchestrator.allocations.waits", {}),
        ("orchestrator.allocations.endpoints", "orchestrator.nodes.commands.nodes", {}),
        ("orchestrator.tasks.store.tasks", "orchestrator.tasks.store.expiry", {}),
    ],
)
def test_an_import_between_nouns_is_found(module: str, other: str, found: dict[str, set[str]]) -> None:
    assert edges([(module, other)]) == found
