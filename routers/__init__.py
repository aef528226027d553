"""The wire: parses a dialect's request, owns its life, writes its answer."""
