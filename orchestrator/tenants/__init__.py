"""Tenants, their quotas, API keys and SSH keys."""
