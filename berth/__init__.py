"""What users type and import: the CLI (`berth.cli`), the local stack (`berth.local`), the client (`berth.client`)."""
