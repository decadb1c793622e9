"""Notifications: events over WebSockets, with stored positions."""
