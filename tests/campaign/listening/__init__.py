"""Subscribers of the feed and of the socket, and their checks."""
