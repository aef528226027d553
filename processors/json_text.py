"""JSON strings that stay on one line under every line splitter.

`str.splitlines()` also cuts at U+0085, U+2028 and U+2029, which JSON lets stand raw; some event stream readers
split that way, so these three are escaped wherever text is written. All other line breaks are escaped by JSON.
"""

from typing import Any

import orjson

_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


def escape_breaks(encoded: bytes) -> bytes:
    """Escape the three breaks in UTF-8 encoded JSON; they can only stand inside its strings."""
    for raw, escaped in _BREAKS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return encoded


def dump_text(text: str) -> bytes:
    """One string as a JSON literal, quotes included."""
    encoded = orjson.dumps(text)
    return encoded if text.isascii() else escape_breaks(encoded)


def to_keep(encoded: bytes) -> bytes:
    """A copy that takes no more memory than its length: orjson's results keep its whole buffer, 4 KiB at least."""
    return b"%b" % encoded


def dump(value: Any) -> bytes:
    """Any JSON value, compact. Infinite and NaN floats would become null: the caller rules them out."""
    return escape_breaks(orjson.dumps(value))
