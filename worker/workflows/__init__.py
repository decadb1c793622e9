"""Workflows: the story of a provisioning and of a release. Deterministic; nothing here touches the outside."""
