"""`berth archive`: ended allocations and old audit rows are written to segments with checksums, and deleted after that.

Modules: `rows` and `audit_rows` (the database), `manifests` (names and content, pure), `directory` and `bucket`
(destinations), `running` and `chains`.
"""
