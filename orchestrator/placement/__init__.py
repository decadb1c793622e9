"""Placement: chooses node and slots for a request. The choice is pure; `store` and `placing` execute it."""
