"""Messages of a WebSocket (RFC 6455)."""
