"""The worker's part of deploy systems: the sweeper of their tasks."""
