"""Maps an error to an exit code and one sentence.

Exit codes: 0 done; 1 refused, failed, or a check found something; 2 wrong usage; 3 a server cannot be reached;
4 the outcome of a write is unknown; 5 the wait timed out; 130 interrupted.

Libraries that only some commands use (httpx, psycopg, alembic) are not imported here: a library that is not loaded
cannot have raised an error.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from berth.cli.known_stack import StackProblem
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.client import BerthError

FAILED, USAGE, UNREACHABLE, UNKNOWN, TIMED_OUT, INTERRUPTED = 1, 2, 3, 4, 5, 130

EXTRA_OF_LIBRARY = {"httpx": "cli", "nats": "cli", "obstore": "cli", "psycopg": "cli"}
CLAIMS_SHOWN = 5
REASON_ADVICE = {
    "unknown_sku": "`berth sku list` shows what is sold",
    "none_in_region": "`berth region list` shows the regions",
    "busy_now": "try again later, or elsewhere; `berth availability --gpus N` shows from when",
}


class Refused(Exception):
    """The command cannot be carried out; the message says what to do. `code` is stable, for `--output json`."""

    def __init__(self, detail: str, *, code: str = "failed", exit_code: int = FAILED) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.exit_code = exit_code


@dataclass(frozen=True)
class Ending:
    """How a failed command ends. `extra` is for programs."""

    exit_code: int
    code: str
    detail: str
    extra: JsonObject = field(default_factory=dict)


def ending_of(error: Exception) -> Ending | None:
    """The ending for an expected error; None for any other, which is a defect and shows its traceback."""
    if isinstance(error, Refused):
        return Ending(error.exit_code, error.code, error.detail)
    if isinstance(error, StackProblem):
        return Ending(FAILED, "stack", str(error))
    if isinstance(error, ModuleNotFoundError):
        return _not_installed(error)
    ending = _of_client(error) or _of_schema(error) or _of_database(error)
    if ending is None and isinstance(error, OSError):
        return Ending(FAILED, "system", f"{error.filename or 'system'}: {error.strerror or error}")
    return ending


def _not_installed(error: ModuleNotFoundError) -> Ending:
    library = (error.name or "").partition(".")[0]
    extra = EXTRA_OF_LIBRARY.get(library, "local")
    return Ending(FAILED, "not_installed", f"this needs {library}, which is not here; install `berth[{extra}]`")


def _of_client(error: Exception) -> Ending | None:
    if "berth.client" not in sys.modules:
        return None
    # Already loaded by the code that raised; start-up stays light.
    from berth.client import BerthError, OutcomeUnknown, Overloaded, Unavailable, WaitTimeout

    if not isinstance(error, BerthError):
        return None
    code = FAILED
    if isinstance(error, OutcomeUnknown) or error.outcome == "in_progress":
        code = UNKNOWN
    elif isinstance(error, Unavailable | Overloaded):
        code = UNREACHABLE
    elif isinstance(error, WaitTimeout):
        code = TIMED_OUT
    extra = {key: value for key, value in error.extra.items() if key not in ("allocation", "reservation")}
    advice = _advice(error)
    detail = _sentence(error) + (f"; {advice}" if advice else "")
    return Ending(code, error.code, detail, {"outcome": error.outcome, "status": error.status, **extra})


def _sentence(error: BerthError) -> str:
    """The server's detail, unless it names a parameter that only a program would send."""
    if error.code == "forbidden" and "?tenant_id=" in error.detail:
        return "an admin key belongs to no tenant, so the tenant must be named"
    return error.detail.rstrip(".")


def _advice(error: BerthError) -> str | None:
    """What to do about the error, where the server's detail does not say."""
    if error.code == "secret_not_shown_again":
        return "create another one with a new idempotency key" + _made_before(error)
    if error.outcome in ("unknown", "in_progress") and error.idempotency_key is not None:
        return f"`berth operations show {shlex.quote(error.idempotency_key)}` shows its outcome"
    if error.code == "unreachable":
        return "is the stack running? `berth doctor` says more"
    if error.code == "unauthenticated":
        return "check BERTH_API_KEY, or create a key with `berth key create`"
    if error.code == "forbidden" and "tenant_id" in error.detail:
        return "name it with --tenant"
    if error.code == "forbidden":
        if "tenant" in error.detail:
            return "set BERTH_API_KEY to a tenant's key; `berth key create NAME --tenant TENANT` creates one"
        return "set BERTH_API_KEY to an admin key, or unset it to use the local stack's"
    if error.code == "quota_exceeded":
        return "release something, or have an operator raise the limit"
    if error.code == "not_found" and "allocation" in error.detail:
        return "with an admin key, name the owner with --tenant"
    if error.code == "resource_busy":
        return _own_in_the_way(error) or "`berth resources show` shows the state of each"
    if error.code == "node_in_use":
        found = error.extra.get("claims", [])
        named = [f"{c['owner_kind']} {c['owner_id']} is {c['state']}: {c['next_step']}" for c in found[:CLAIMS_SHOWN]]
        return "; ".join(named)
    if error.code == "maintenance_conflict":
        return _in_the_way_of_a_window(error)
    return REASON_ADVICE.get(str(error.extra.get("reason")))


def _own_in_the_way(error: BerthError) -> str | None:
    """The caller's own objects that hold the resource; those of other tenants are never named."""
    found = [str(name).replace("s/", " ", 1) for name in error.extra.get("conflicts") or []]
    more = f" and {len(found) - CLAIMS_SHOWN} more" if len(found) > CLAIMS_SHOWN else ""
    return f"yours: {', '.join(found[:CLAIMS_SHOWN])}{more}" if found else None


def _in_the_way_of_a_window(error: BerthError) -> str | None:
    """The claims that refuse a maintenance window, if the response names any; other tenants' too: only operators commit one."""
    found = error.extra.get("conflicts") or []
    named = []
    for claim in found[:CLAIMS_SHOWN]:
        kind, _, name = str(claim["owner"]).partition("/")
        named.append(
            f"{'maintenance window' if kind == 'maintenance' else kind.removesuffix('s')} {name} is {claim['state']}"
        )
    more = f" and {len(found) - CLAIMS_SHOWN} more" if len(found) > CLAIMS_SHOWN else ""
    return f"in the way: {', '.join(named)}{more}" if named else None


def _made_before(error: BerthError) -> str:
    """The object to revoke, if the first response names it."""
    answer = error.extra.get("answer")
    return f", and revoke {answer['id']}" if isinstance(answer, dict) and "id" in answer else ""


def _of_schema(error: Exception) -> Ending | None:
    if "migrations" not in sys.modules:
        return None
    # Already loaded by the code that raised; start-up stays light.
    from alembic.util import CommandError

    from migrations import SchemaProblem

    if isinstance(error, CommandError):
        return Ending(FAILED, "schema", f"the schema cannot be moved: {error}")
    if isinstance(error, SchemaProblem):
        return Ending(UNREACHABLE if "cannot connect" in str(error) else FAILED, "schema", str(error))
    return None


def _of_database(error: Exception) -> Ending | None:
    if "psycopg" not in sys.modules:
        return None
    # Already loaded by the code that raised; start-up stays light.
    import psycopg

    if not isinstance(error, psycopg.Error):
        return None
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, psycopg.OperationalError):
        return Ending(UNREACHABLE, "database_unreachable", f"cannot use the database: {reason}")
    return Ending(FAILED, "database_error", f"the database refused: {reason}; is it at the newest schema?")
