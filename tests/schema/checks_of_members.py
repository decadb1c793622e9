"""Rows that the check constraints of scopes, members and invitations refuse and accept."""

from __future__ import annotations

from tests.schema.checks import Check

CHECKS = {
    "api_key_scopes_are_known": Check(
        "api_keys",
        (
            {"scopes": []}, {"scopes": [None]}, {"scopes": ["log"]}, {"scopes": ["log:read", "usage:delete"]},
            {"scopes": ["log:read usage:read "]}, {"scopes": ["a:read"] * 65},
        ),
        ({"scopes": None}, {"scopes": ["log:read", "admin-api-keys:write"]}, {"scopes": ["a:read"] * 64}),
    ),
}  # fmt: skip
