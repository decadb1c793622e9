"""The budgets of DESIGN §10, measured over real servers with everything durable: `python -m benchmarks`."""
