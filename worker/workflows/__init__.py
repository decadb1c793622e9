"""The deterministic workflows of provisioning and release. Only their activities reach the outside."""
