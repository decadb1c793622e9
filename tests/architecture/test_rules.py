"""The rules of DESIGN §3 that import-linter cannot see, read off the syntax tree. Each rule is shown to find a breach."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.architecture.source_modules import PACKAGES, ROOT, modules, parsed
from tests.support.command_sources import command_modules, command_trees

NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "shared", "base", "core", "manager", "managers"}
SQL = re.compile(r"^\s*(select|insert into|update|delete from|with|create|alter|drop)\s", re.IGNORECASE)
MAY_HOLD_SQL = (
    "orchestrator/database/", "orchestrator/verification/", "outbox_relay/", "migrations/", "berth/cli/deployment/",
    "node_agent/journal_file.py", "berth/local/servers.py", "berth/local/high_availability/cluster.py",
    "berth/client/consumer_positions.py", "berth/local/backups.py",
)  # fmt: skip
STORE = re.compile(r"^orchestrator/[a-z]+/([a-z_]+/)?(store/[a-z_]+|store|[a-z_]+_store)\.py$")
MAY_BE_IMPORTED = {
    "node_agent": (
        "node_agent.protocol",
        "node_agent.key_set",
        "node_agent.attestation.wire",
        "node_agent.wiping.machine_reports",
        "node_agent.wiping.statement",
        "node_agent.wire.deploy_enrolment",
        "node_agent.wire.deploy_medium",
        "node_agent.wire.deploy_tasks",
        "node_agent.wire.attestations",
        "node_agent.wire.devices",
        "node_agent.wire.burn_in",
        "node_agent.wire.console",
        "node_agent.wire.fields",
        "node_agent.wire.firmware",
        "node_agent.wire.first_boot",
        "node_agent.wire.gpu_reset",
        "node_agent.wire.guests",
        "node_agent.wire.health",
        "node_agent.wire.images",
        "node_agent.wire.layout",
        "node_agent.wire.maintenance",
        "node_agent.wire.networks",
        "node_agent.wire.processors",
        "node_agent.wire.sites",
        "node_agent.wire.switches",
        "node_agent.wire.topology",
    ),
    "berth": ("berth.client", "berth.process"),
}
CONNECTS = {"connect", "create_engine", "create_async_engine", "Settings", "getenv"}


def sql_literals(tree: ast.Module) -> Iterator[int]:
    """Lines of string literals that are SQL statements (prose of that look has no further SQL word)."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = node.value
            if SQL.match(text) and re.search(r"\b(from|values|set|table|returning|\()\b", text, re.IGNORECASE):
                yield node.lineno


def awaits_beside(tree: ast.Module) -> Iterator[int]:
    """Lines inside `async with ....transaction() as tx` that await something which is not handed `tx`."""
    for block in ast.walk(tree):
        if not isinstance(block, ast.AsyncWith):
            continue
        names = {
            item.optional_vars.id
            for item in block.items
            if isinstance(item.context_expr, ast.Call)
            and isinstance(item.context_expr.func, ast.Attribute)
            and item.context_expr.func.attr in ("transaction", "autocommit", "reading", "read_one")
            and isinstance(item.optional_vars, ast.Name)
        }
        if not names:
            continue
        for inner in ast.walk(block):
            if isinstance(inner, ast.Await):
                used = {node.id for node in ast.walk(inner.value) if isinstance(node, ast.Name)}
                if not used & names:
                    yield inner.lineno


def acts_at_import(tree: ast.Module) -> Iterator[int]:
    """Lines at module level that connect, read the environment, or construct settings."""
    for statement in tree.body:
        if isinstance(
            statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.If | ast.Import | ast.ImportFrom
        ):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                if name in CONNECTS:
                    yield node.lineno
            if isinstance(node, ast.Attribute) and node.attr == "environ":
                yield node.lineno


COMMANDS = re.compile(r"^orchestrator\.[a-z]+\.commands\b")


def calls_another_command(tree: ast.Module) -> Iterator[int]:
    """Lines that import a command."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and COMMANDS.match(node.module or ""):
            yield node.lineno


def reaches_past_the_protocol(tree: ast.Module) -> Iterator[int]:
    """Lines that import of the agent anything but the wire types, or of `berth` anything but the client."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name in [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]:
            package = name.split(".")[0]
            allowed = tuple(f"{module}." for module in MAY_BE_IMPORTED.get(package, (package,)))
            if not f"{name}.".startswith(allowed):
                yield node.lineno


def imports_more_than_the_shared_package(path: str, tree: ast.Module) -> Iterator[int]:
    """Lines that import a package of the project other than the module's own and `berth.process`."""
    own = "berth.process." if path.startswith("berth/process/") else f"{path.split('/')[0]}."
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                if name.split(".")[0] in PACKAGES and not f"{name}.".startswith((own, "berth.process.")):
                    yield node.lineno


def without_docstring(tree: ast.Module) -> Iterator[int]:
    """The first line of a module without a docstring."""
    if ast.get_docstring(tree) is None:
        yield 1


def test_no_module_is_named_after_nothing() -> None:
    assert [path for path, _ in modules() if Path(path).stem in NAMELESS] == []


def test_sql_is_in_the_store() -> None:
    found = [
        f"{path}:{line}"
        for path, tree in modules()
        if not (path.startswith(MAY_HOLD_SQL) or STORE.match(path))
        for line in sql_literals(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("rule", "packages"),
    [
        (awaits_beside, ("orchestrator", "worker")),
        (acts_at_import, ("berth", "orchestrator", "worker", "outbox_relay", "node_agent")),
        (reaches_past_the_protocol, ("orchestrator", "worker")),
        (without_docstring, PACKAGES),
    ],
)
def test_no_module_breaks(rule: Callable[[ast.Module], Iterator[int]], packages: tuple[str, ...]) -> None:
    assert [f"{path}:{line}" for path, tree in modules(*packages) for line in rule(tree)] == []


def test_relay_and_agent_import_only_the_shared_package_and_that_imports_nothing() -> None:
    isolated = ("outbox_relay", "node_agent", "berth/process")
    found = [
        f"{path}:{line}"
        for path, tree in modules(*isolated)
        for line in imports_more_than_the_shared_package(path, tree)
    ]
    assert found == []
    breach = ast.parse("from berth.client import api")
    assert list(imports_more_than_the_shared_package("node_agent/agent.py", breach))
    assert list(imports_more_than_the_shared_package("berth/process/logs.py", ast.parse("import berth.client")))
    initial = ast.parse((ROOT / "berth" / "__init__.py").read_text())
    assert not [node for node in ast.walk(initial) if isinstance(node, ast.Import | ast.ImportFrom)]


@pytest.mark.parametrize(
    ("rule", "breach"),
    [
        (sql_literals, "x = 'select a from b'"),
        (awaits_beside, "async def f():\n async with d.transaction() as tx:\n  await http.get('x')"),
        (acts_at_import, "engine = create_engine('x')"),
        (acts_at_import, "import os\nurl = os.environ['X']"),
        (calls_another_command, "from orchestrator.allocations.commands.release import release_allocation"),
        (reaches_past_the_protocol, "from node_agent.journal import Journal"),
        (reaches_past_the_protocol, "import berth.local.stack"),
        (reaches_past_the_protocol, "from node_agent import protocol, journal"),
        (without_docstring, "x = 1"),
    ],
)
def test_each_rule_finds_a_breach(rule: Callable[[ast.Module], Iterator[int]], breach: str) -> None:
    assert list(rule(ast.parse(breach)))


def test_no_command_calls_another() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in command_modules() for line in calls_another_command(parsed(path))
    ]
    assert found == []


def test_commands_have_names_of_their_own() -> None:
    assert {"create_allocations", "release_allocation", "hold_resources", "commit_transactions"} <= set(command_trees())


def test_ratios_of_benchmarks_are_over_the_frozen_bare_rows() -> None:
    """`create` has the present schema's as a second figure; every other one knows the frozen copy alone (DESIGN §10)."""
    users = {
        path
        for path, tree in modules("benchmarks")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "bare_rows_per_second" in [alias.name for alias in node.names]
    }
    assert users == {"benchmarks/create.py"}
