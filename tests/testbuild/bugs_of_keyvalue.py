"""Bugs planted into the key-value store."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.testbuild.planting import replace, rewritten_function

_DELETE_ONE = "update kv_keys k set value = null, mark = p_mark, event_id = p_event\n            from given g"

KEYVALUE_SQL: dict[str, str] = {
    "preconditions_ignored": rewritten_function(
        "kv_commit", ("elsif jsonb_array_length(item.preconditions) > 0 then", "elsif false then")
    ),
    "deletes_unmarked": rewritten_function(
        "kv_apply", (_DELETE_ONE, "update kv_keys k set value = null, event_id = p_event\n            from given g")
    ),
    "deletes_forgotten": rewritten_function(
        "kv_apply", ("from given g where g.value is null", "from given g where false and g.value is null")
    ),
    "conflicts_of_other_keys": rewritten_function("kv_conflicts", ("and k.key = one.lo and k.mark", "and k.mark")),
    "commits_not_remembered": rewritten_function("kv_told_before", ("o.scope = p_scope and o.key = p_key;", "false;"))
    + rewritten_function("kv_store_operations", ("if missing <> 0 then", "if false then")),
}


def read_without_waiting() -> None:
    """A read does not wait until the commits that it includes have versions: it returns that of the log's end."""
    from orchestrator.keyvalue.store import keys

    genuine = vars(keys)["read_snapshot"]

    async def read_snapshot(*arguments: Any) -> Any:
        return dataclasses.replace(await genuine(*arguments), pending_mark=None)

    replace(keys, "read_snapshot", read_snapshot)


def read_from_cache() -> None:
    """A process returns what its first read of a key found."""
    from orchestrator.keyvalue import endpoints

    genuine = vars(endpoints)["find_key"]
    found: dict[Any, Any] = {}

    async def find_key(database: Any, namespace: Any, key: bytes) -> Any:
        if (namespace, key) not in found:
            found[namespace, key] = await genuine(database, namespace, key)
        return found[namespace, key]

    replace(endpoints, "find_key", find_key)


def answer_with_the_version_before() -> None:
    """A commit's response has the version before that of its event."""
    from orchestrator.keyvalue import commands

    genuine = vars(commands)["give_versions"]

    async def give_versions(*arguments: Any) -> Any:
        moved, positions = await genuine(*arguments)
        return moved, {event: dataclasses.replace(p, version=p.version - 1) for event, p in positions.items()}

    replace(commands, "give_versions", give_versions)


def find_no_transaction() -> None:
    """A status query does not find a commit in the log."""
    from orchestrator.keyvalue import commit_endpoints

    async def nothing(*_: Any) -> None:
        return None

    replace(commit_endpoints, "find_transaction", nothing)
    replace(commit_endpoints, "find_position", nothing)
