"""Event logs of the system and its manager, bounded."""

from __future__ import annotations

from typing import Final

from node_agent.redfish.contract import EventLog, LogEntry
from node_agent.redfish.documents import Document
from node_agent.redfish.machine import Machine
from node_agent.redfish.problems import NotSupported, ValueNotAllowed

ENTRIES_MAX: Final = 1000
SERVICES_MAX: Final = 16


async def read_log(machine: Machine, limit: int) -> EventLog:
    """The newest entries by their time, then by the BMC's order. Raises NotSupported if neither has a log service."""
    if not 1 <= limit <= ENTRIES_MAX:
        raise ValueNotAllowed(f"the limit of log entries must be 1 to {ENTRIES_MAX}")
    system = await machine.system()
    owners = [system]
    try:
        owners.append(await machine.manager(system))
    except NotSupported:
        pass
    entries: list[LogEntry] = []
    truncated, services = False, 0
    for link in dict.fromkeys(owner.link("LogServices") for owner in owners):
        if link is None:
            continue
        found, more = await machine.session.members(link, "log services", SERVICES_MAX)
        truncated = truncated or more
        for service in found:
            services += 1
            if (own := service.link("Entries")) is None:
                continue
            members, more = await machine.session.members(own, "log entries", ENTRIES_MAX)
            truncated = truncated or more
            entries += [_entry(member) for member in members]
    if not services:
        raise NotSupported("neither the system nor its manager has a log service")
    entries.sort(key=lambda entry: entry.created, reverse=True)
    return EventLog(tuple(entries[:limit]), truncated or len(entries) > limit)


def _entry(member: Document) -> LogEntry:
    severity = member.text("Severity") or member.text("MessageSeverity")
    return LogEntry(member.text("Id"), member.text("Created"), severity, member.text("Message"))
