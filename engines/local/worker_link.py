"""The gateway's end of the socket to the embedded engine's process, on the running event loop."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from engines.local.wire import ToEngine, ToGateway, decode_to_gateway, encode

logger = logging.getLogger(__name__)

MESSAGES_PER_WAKE = 16
FAREWELL_MS = 40


class WorkerLink:
    """A DEALER socket watched by the loop itself, without a task or a future per message.

    ZMQ's descriptor only signals changes, and any call on the socket may use a signal up. So all messages are taken at
    each wake, and after each send it is asked again whether some have come. `on_disconnect` is called when an
    established connection breaks; `connected` says whether one ever stood.
    """

    def __init__(
        self, address: str, on_message: Callable[[ToGateway], None], on_disconnect: Callable[[], None]
    ) -> None:
        self._on_message = on_message
        self._on_disconnect = on_disconnect
        self.connected = False
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(0)
        try:
            self._socket.connect(address)
        except zmq.ZMQError:
            self._context.destroy(linger=0)
            raise
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
        self._loop.add_reader(self._socket.fileno(), self.drain)
        self._loop.add_reader(self._monitor.fileno(), self._watch)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._context.closed

    def send(self, message: ToEngine) -> None:
        """Send without waiting; before the connection stands, messages are kept for it."""
        self._socket.send(encode(message), zmq.NOBLOCK)
        if _readable(self._socket):
            self._loop.call_soon(self.drain)

    def drain(self) -> None:
        """Take the messages that have come; the rest of a flood waits for the loop's next round."""
        if self._take(MESSAGES_PER_WAKE) == MESSAGES_PER_WAKE:
            self._loop.call_soon(self.drain)

    def drain_all(self) -> None:
        """Take every message that has come."""
        while self._take(MESSAGES_PER_WAKE):
            pass

    def close(self, linger_ms: int = 0) -> None:
        """Close the sockets, waiting up to `linger_ms` for what was just sent. Safe to call twice."""
        if not self.closed:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_reader(self._monitor.fileno())
            self._socket.disable_monitor()
            self._context.destroy(linger=linger_ms)

    def _take(self, most: int) -> int:
        """Deliver up to `most` messages and return how many there were."""
        for taken in range(most):
            if self.closed or not _readable(self._socket):
                return taken
            data = self._socket.recv(zmq.NOBLOCK)
            try:
                message = decode_to_gateway(data)
            except msgspec.DecodeError as error:
                logger.error("a message of the engine can't be read: %s", error)
                continue
            self._on_message(message)
        return most

    def _watch(self) -> None:
        while not self.closed and _readable(self._monitor):
            if recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"] == zmq.EVENT_CONNECTED:
                self.connected = True
            else:
                self._on_disconnect()


def _readable(socket: "zmq.Socket[bytes]") -> bool:
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
