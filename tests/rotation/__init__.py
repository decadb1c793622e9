"""Rotation of keys by the documented commands, while processes run and nodes execute tasks."""
