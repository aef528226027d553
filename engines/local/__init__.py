"""The embedded engine: transformers modules under a step loop of our own, in a process of its own."""
