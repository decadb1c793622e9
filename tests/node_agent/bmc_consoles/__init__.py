"""Serial consoles of machines behind a BMC, as the agent of a site opens them."""
