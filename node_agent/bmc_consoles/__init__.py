"""Serial consoles of machines behind a BMC: found by its Redfish documents, opened by SSH, joined with a tenant's session."""
