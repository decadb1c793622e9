"""Rows that the check constraints of scopes, members and invitations refuse and accept."""

from __future__ import annotations

from tests.schema.checks import Check, digest, length, one_of
from tests.support.rows import NOW, OTHER

_ROLES = ("viewer", "member", "admin", "billing")

CHECKS = {
    "api_key_scopes_are_known": Check(
        "api_keys",
        (
            {"scopes": []}, {"scopes": [None]}, {"scopes": ["log"]}, {"scopes": ["log:read", "usage:delete"]},
            {"scopes": ["log:read usage:read "]}, {"scopes": ["a:read"] * 65},
        ),
        ({"scopes": None}, {"scopes": ["log:read", "admin-api-keys:write"]}, {"scopes": ["a:read"] * 64}),
    ),
    "member_subject_is_bounded": length("tenant_members", "subject", 1, 255),
    "member_role": one_of("tenant_members", "role", *_ROLES),
    "member_name_is_bounded": length("tenant_members", "name", 1, 100),
    "invitation_role": one_of("tenant_invitations", "role", *_ROLES),
    "invitation_name_is_bounded": length("tenant_invitations", "name", 1, 100),
    "invitation_token_hash_has_32_bytes": digest("tenant_invitations", "token_hash"),
    "invitation_acceptance_is_whole": Check(
        "tenant_invitations",
        ({"accepted_at": NOW}, {"accepted_by": OTHER}),
        ({}, {"accepted_at": NOW, "accepted_by": OTHER}),
    ),
    "invitation_ends_once": Check(
        "tenant_invitations",
        ({"accepted_at": NOW, "accepted_by": OTHER, "revoked_at": NOW},),
        ({"revoked_at": NOW}, {"accepted_at": NOW, "accepted_by": OTHER}),
    ),
}  # fmt: skip
