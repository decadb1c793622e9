"""PostgreSQL: connections, transactions, clocks, response versions, bounds."""
