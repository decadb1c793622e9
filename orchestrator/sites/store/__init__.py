"""SQL of sites. Lock order: node, site, agent, BMC, task."""
