"""Consoles of machines behind a BMC: the tenant's interface, the site's agent and the BMC's SSH server."""
