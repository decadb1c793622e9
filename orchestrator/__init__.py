"""The orchestrator: API (tenant, admin, log, node), domain, placement and all control-plane SQL.

Imports run one way (DESIGN §3): domain <- placement <- store <- commands, queries <- api <- app. Neither temporalio nor nats is
imported here, so no request can write to two systems.
"""
