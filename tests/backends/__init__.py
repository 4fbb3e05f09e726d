"""What only one backend can do, or suffer: its URL, its server, its faults."""
