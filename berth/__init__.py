"""What users type and import: the CLI (`berth.cli`), the local stack (`berth.local`), the client (`berth.client`).

`berth.process` is what every process shares. This module imports nothing, so that importing it loads no other part.
"""
