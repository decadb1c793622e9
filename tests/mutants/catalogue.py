"""The catalogue of mutants: all of them, of whichever module."""

from __future__ import annotations

from tests.mutants import (
    agent,
    allocations,
    archive,
    audit_stream,
    audited,
    billing,
    client,
    drivers,
    edge,
    ends,
    limits,
    log,
    nodes,
    operations,
    reservations,
    security,
    tenants,
    verbs,
    webhooks,
    worker,
)
from tests.mutants.fleet import discovery, faults, guests, health, hosts, maintenance, probes, quarantines, wipes
from tests.mutants.mutant import Mutant

MODULES = (
    allocations,
    archive,
    audit_stream,
    audited,
    reservations,
    nodes,
    tenants,
    billing,
    operations,
    log,
    maintenance,
    guests,
    hosts,
    wipes,
    health,
    discovery,
    quarantines,
    probes,
    faults,
    webhooks,
    worker,
    agent,
    drivers,
    client,
    verbs,
    edge,
    limits,
    ends,
    security,
)
MUTANTS: list[Mutant] = [mutant for module in MODULES for mutant in module.MUTANTS]
