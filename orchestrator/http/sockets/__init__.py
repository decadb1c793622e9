"""What the WebSockets of the public API share."""
