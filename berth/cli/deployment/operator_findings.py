"""Findings of `berth doctor` about the audit's streams, and about the operators that four eyes need."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from berth.cli.deployment.audit_streams import StreamReadings, read_streams
from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS
from berth.cli.settings import Settings

FAILING_SECONDS_MAX = 60
UNSENT_SECONDS_MAX = 300
# As the rule of approvals counts: keys of one owner are one person, and a key without an owner is one.
_OPERATORS = """
select count(distinct coalesce(lower(owner), id::text)) filter (where not break_glass),
       count(*) filter (where break_glass)
from api_keys
where tenant_id is null and access_role = 'admin' and revoked_at is null and replaced_by is null
  and (expires_at is null or expires_at > clock_timestamp())
"""


def operator_findings(database_url: str, settings: Settings) -> Iterator[Finding]:
    """Needs the schema."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        streams = read_streams(connection)
        operators = connection.execute(_OPERATORS).fetchone()
    assert operators is not None, "an aggregate has one row"
    if not streams:
        yield Finding("audit streams", "skipped", "the audit is streamed nowhere")
    for stream in streams:
        yield _stream(stream)
    yield _four_eyes(settings.four_eyes, *map(int, operators))


def _stream(stream: StreamReadings) -> Finding:
    subject = f"audit to {stream.name}"
    behind = f"{stream.unsent} rows wait, the oldest for {stream.oldest_seconds:.0f} s"
    advice = (
        f"; until they are sent, or `berth audit-stream remove {stream.name}` ends the stream, they are not archived"
    )
    if stream.last_error is not None:
        late = stream.failing_seconds > FAILING_SECONDS_MAX
        return Finding(subject, "bad" if late else "warning", f"{behind}; {stream.last_error}{advice}")
    if stream.oldest_seconds > UNSENT_SECONDS_MAX:
        missing = "" if stream.sending else "; is `python -m worker --audit-stream` running?"
        return Finding(subject, "bad", behind + missing + advice)
    return Finding(subject, "ok", f"every row up to {stream.sequence} is sent, {stream.unsent} wait")


def _four_eyes(required: bool, people: int, break_glass: int) -> Finding:
    if not required:
        return Finding("four eyes", "skipped", "not required (BERTH_FOUR_EYES)")
    counted = f"{people} operators with a live admin key, {break_glass} break-glass keys"
    if people >= 2 or (people and break_glass):
        return Finding("four eyes", "ok", counted)
    return Finding(
        "four eyes",
        "warning",
        f"{counted}: no second operator can approve; make an admin key for another owner, or a break-glass key"
        " (operators that log in by OIDC are not counted)",
    )
