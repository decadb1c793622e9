"""Which processes may serve on which schema: processes of version N-1 and N work on one database during a rolling upgrade.

A process is of the newest revision that its code has. It needs that revision (migrations run first), and the database names the
oldest process that it still serves (`function_generation.oldest_process`): a revision that removes what earlier processes use
raises it.
"""

from __future__ import annotations

SCHEMA_REVISION = "0072"
"""The newest revision that this code knows, and the oldest schema that it works on. A newer one is fine until it says else."""


def why_unusable(found: str | None, oldest_process: str | None) -> str | None:
    """Why this code must not serve on a database of this revision, with the next step; None if it may.

    `oldest_process` is not read before the revision is known to be new enough: an earlier schema does not have it.
    """
    if found is None:
        return "the database has no schema yet; run `berth migrate`"
    if found < SCHEMA_REVISION:
        return f"the database's schema is {found} and this Berth needs {SCHEMA_REVISION}; run `berth migrate`"
    if oldest_process is not None and oldest_process > SCHEMA_REVISION:
        return (
            f"the database's schema ({found}) serves processes of {oldest_process} and later, and this Berth is of "
            f"{SCHEMA_REVISION}; upgrade this process"
        )
    return None
