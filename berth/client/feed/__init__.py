"""Reading the log: server-sent events and WebSocket notifications, with reconnection and proof that nothing was missed."""
