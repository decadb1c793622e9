"""Networks of tenants: subnets, addresses of guests and published ports of nodes, leased as rows."""
