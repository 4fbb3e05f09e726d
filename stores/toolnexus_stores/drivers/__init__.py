"""The backends: bytes in, bytes out, no policy."""
