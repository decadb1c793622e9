"""The database roles of the processes. The role that migrates owns the schema; these own nothing (privileges.sql)."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The role that a process, or a person with a tool, connects to PostgreSQL as."""

    PUBLIC_API = "berth_public_api"
    NODE_API = "berth_node_api"
    ISSUER = "berth_issuer"
    WORKER = "berth_worker"
    WEBHOOKS = "berth_webhooks"
    AUDIT_STREAM = "berth_audit_stream"
    RELAY = "berth_relay"
    OPERATOR = "berth_operator"
    READ_ONLY = "berth_read_only"


BACKUP_ROLE = "berth_backup"
"""Of `berth backup`: LOGIN and REPLICATION, no right on any database. Its backups contain everything, so it is none of `Role`."""
