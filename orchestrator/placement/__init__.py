"""Placement: which node and which slots a request gets. Decisions are pure; `store` runs them."""
