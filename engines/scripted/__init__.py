"""The scripted engine: dictates tokens, grouping, pace, values and faults."""
