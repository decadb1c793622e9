"""Python builds no SQL from text: a composed statement is a Core expression or `psycopg.sql`, a fixed one a constant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture import measures
from tests.architecture.source_modules import modules

# Parts of statements, written in lower case in this tree. Prose has these words too, but not in these surroundings.
SQL = re.compile(
    r"^\s*(select|insert into|update \w+ set|delete from|with \w+ as|create (table|index|or replace)|alter table|drop \w+)\b"
    r"|\b(from|join|into|update) \w+( \w)? (where|join|left|cross|set|order|limit)\b"
    r"|\bwhere \(*[\w.]+( (is|in|and|not|between|like) |\s*(=|<|>|@>|&&))|\b(order|group) by [\w.]+|\blimit (:|%|\d|$)"
    r"|\breturning [\w.{]|\bunion all\b|\bfor (no key )?update\b|\bset_config\(|\bnow\(\)|\bclock_timestamp\(\)"
)
BUILDS = {"format", "format_map", "replace", "join", "removeprefix", "removesuffix"}
EXECUTES = {"execute", "executemany", "text", "scan"}


def is_composed(node: ast.AST) -> bool:
    """Whether the expression makes text from text: an f-string, `+`, `%`, or a method in `BUILDS`."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.Add | ast.Mod)
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(node, ast.JoinedStr) or (isinstance(called, ast.Attribute) and called.attr in BUILDS)


def name_of(called: ast.expr) -> str:
    """The last name of what is called."""
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def pieces(node: ast.AST, named: dict[str, str]) -> Iterator[str]:
    """The texts that the expression is made of, named constants of the module included; what `SQL()` wraps is not text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name):
        yield named.get(node.id, "")
    elif not (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and name_of(node.func) == "SQL"
    ):
        for inner in ast.iter_child_nodes(node):
            yield from pieces(inner, named)


def texts(tree: ast.Module) -> dict[str, str]:
    """The module's names that are bound to text."""
    return {
        target.id: text
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and (text := " ".join(pieces(node.value, {})))
    }


def pragma(statement: ast.AST) -> bool:
    """Whether it is a setting of SQLite, which takes no parameters."""
    return next(pieces(statement, {}), "").startswith("PRAGMA ")


def builds_sql(tree: ast.Module) -> Iterator[int]:
    """Lines that build SQL from text, or execute text that was built."""
    named = texts(tree)
    for node in ast.walk(tree):
        if is_composed(node) and any(SQL.search(piece) for piece in pieces(node, named)):
            yield node.lineno  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and node.args:
            statement = node.args[0]
            if isinstance(statement, ast.Call) and isinstance(statement.func, ast.Attribute):
                statement = statement.func.value if statement.func.attr == "encode" else statement
            if (
                name_of(node.func) in EXECUTES
                and isinstance(statement, ast.JoinedStr | ast.BinOp)
                and not pragma(statement)
            ):
                yield node.lineno


def test_no_module_builds_sql_from_text() -> None:
    assert [f"{path}:{line}" for path, tree in modules() for line in builds_sql(tree)] == []


@pytest.mark.parametrize(
    "planted",
    [
        'await tx.execute(f"select id from nodes where {condition}")',
        'await tx.execute(f"{_SELECT} {_CONDITION}", values)',
        'connection.execute(f"{anything}".encode())',
        'statement = f"update nodes set state = {state} where id = :id"',
        '_READ = f"select {_COLUMNS} from nodes"',
        '_LIST = "select id from nodes {where}".format(where=condition)',
        '_SELECT = "select id from nodes"\n_LIST = _SELECT + condition',
        '_SELECT = "select id from nodes"\n_LIST = f"{_SELECT} {condition}"',
        '_SELECT = "select id from {table}"\n_LIST = _SELECT.replace("{table}", table)',
        "sql = \"select id from nodes where state = '%s'\" % state",
        'sql = "select id from nodes" + " where id = :id"',
        'sql += " order by id"',
        'sql += " and tenant_id = :tenant_id order by id"\nsql = sql + " order by id"',
        'sql = " union all ".join(statements)',
        'rest = f" limit {limit}" if limit else f" order by {column}"',
        'sql = text("select 1" + rest)',
    ],
)
def test_a_planted_composition_is_found(planted: str) -> None:
    assert list(builds_sql(ast.parse(planted)))


@pytest.mark.parametrize(
    "allowed",
    [
        '_READ = "select id from nodes where id = :id"',
        'named = SQL("select * from {}").format(Identifier(table))',
        'connection.execute(sql.SQL("drop function {}").format(sql.Identifier(name)))',
        '_HELD = SQL("with a as (select 1) ") + SQL("select id from held where id = 1")',
        'page = select(nodes).where(nodes.c.id > after).limit(limit)',
        'raise NotFound(f"there is no node {node_id} in this list; choose another from it")',
        'log.info("a" + name)',
    ],
)  # fmt: skip
def test_what_is_allowed_is_not_found(allowed: str) -> None:
    assert list(builds_sql(ast.parse(allowed))) == []


def test_the_format_of_times_is_in_the_function_rfc3339_alone() -> None:
    """The escaped quotes of a literal of Python count as quotes."""
    paths = measures.tracked(
        "orchestrator/*", "worker/*", "outbox_relay/*", "berth/*", "migrations/*", "benchmarks/*", "deploy/*"
    )
    found = [
        measures.name_of(path) for path in paths if path.suffix in (".py", ".sql") and has_time_format(path.read_text())
    ]
    assert found == ["migrations/functions/database/rfc3339.sql"]


def has_time_format(text: str) -> bool:
    """Whether the text formats a time with its fraction as RFC 3339."""
    return '"T"HH24:MI:SS.' in text.replace("\\", "")


@pytest.mark.parametrize("planted", ["""'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'""", """"'YYYY-MM-DD\\"T\\"HH24:MI:SS.US'" """])
def test_a_planted_format_is_found(planted: str) -> None:
    assert has_time_format(planted)


LOG = re.compile(r"(?<!delete )\b(from|join)\s+log\b|, log l\b")
READS_LOG_AND_LOCKS = {
    "orchestrator/webhooks/store/dispatch.py:_ADVANCE": "its webhooks are locked by the statement before",
    "migrations/functions/log/store_operation_versions.sql": "its partitions are chosen by parameters, before any row is read",
}
LOCKS = re.compile(
    r"\bfor\s+((no )?key )?(update|share)\b|\bupdate\s+\w+\s+((as )?\w+\s+)?set\b|\bdelete from (?!log\b)|\bmerge into\b"
)


def locks_and_reads_log(statement: str) -> bool:
    """Whether a statement locks rows and reads the log, which has partitions."""
    return bool(LOG.search(statement) and LOCKS.search(statement))


def test_no_statement_locks_rows_and_reads_the_log() -> None:
    """PostgreSQL 18 crashes in some: where it finds a newer version of a row, and chooses partitions by what it has read."""
    statements = {f"{path}:{name}": text for path, tree in modules() for name, text in texts(tree).items()}
    found = [name for name, text in statements.items() if locks_and_reads_log(text)]
    for path in measures.tracked("migrations/functions/*"):
        parts = re.split(r";|\bloop\b", path.read_text()) if path.suffix == ".sql" else []
        found += [measures.name_of(path) for part in parts if locks_and_reads_log(part)]
    assert sorted(found) == sorted(READS_LOG_AND_LOCKS)


@pytest.mark.parametrize(
    "planted",
    [
        "with a as (select id from webhooks for no key update skip locked) select * from a join log on true",
        "with a as (update nodes n set state = 'x' returning *) select * from a left join log l on l.version = a.version",
        "delete from dead_letters d using (select version from log) l where d.version = l.version",
        "select from outbox o, log l where l.event_id = o.event_id for key share of o",
        "merge into webhooks as w using (select version\nfrom\nlog) l on true when matched then do nothing",
    ],
)
def test_a_planted_lock_beside_the_log_is_found(planted: str) -> None:
    assert locks_and_reads_log(planted)
