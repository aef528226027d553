"""Pure rendering: neutral deltas into the bytes of a dialect."""
