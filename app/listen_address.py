"""Whether the address to listen on can be taken, asked before the engine's long start and not after it."""

import os
import socket

from app.settings import InvalidSettings, Settings, flag_of


def check_listen_address(settings: Settings) -> None:
    """Bind the address for a moment. InvalidSettings where there is no such address, or it is in use.

    Another process may still take it before the server listens; then the start fails there.
    """
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidSettings(f"{flag_of('host')}: {settings.host!r}: {error.strerror}") from error
    for family, kind, protocol, _, address in found:
        try:
            probe = socket.socket(family, kind, protocol)
        except OSError:
            # A family that the system lacks; the loop's create_server passes over it too.
            continue
        with probe:
            _bind(probe, address, settings)


def _bind(probe: socket.socket, address: tuple[str | int, ...] | tuple[int, bytes], settings: Settings) -> None:
    """Bind as a listener does: connections that rest after their close are in nobody's way."""
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if probe.family == socket.AF_INET6:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        probe.bind(address)
    except OSError as error:
        flags = f"{flag_of('host')} {settings.host} {flag_of('port')} {settings.port}"
        reason = os.strerror(error.errno or 0)
        raise InvalidSettings(f"can't listen with {flags}: {reason}") from error
