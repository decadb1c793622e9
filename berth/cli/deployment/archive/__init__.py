"""`berth archive`: ended allocations are written to segments with checksums, and deleted after that.

Modules: `rows` (the database), `manifests` (names and content, pure), `directory` (the destination), `running` and `checking`.
"""
