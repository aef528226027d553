"""The gateways that have dialed in: one ROUTER socket, and who is known on it."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import zmq

from engines.local.wire import Goodbye, Hello, ToEngine, ToGateway, decode_to_engine, encode

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Gateway:
    """One gateway: its name for the engine, when it was last heard, and the counts it last was told."""

    engine_id: str
    heard: float
    counts: tuple[int, int] = (0, 0)


class Gateways:
    """Receives from and sends to all gateways. A gateway is gone when it says so, is silent, or can't be reached."""

    def __init__(self, socket: "zmq.Socket[bytes]", silence_limit: float) -> None:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket = socket
        self._silence_limit = silence_limit
        self._known: dict[bytes, Gateway] = {}

    def __iter__(self) -> Iterator[tuple[bytes, Gateway]]:
        return iter(list(self._known.items()))

    def receive(self, timeout_ms: int) -> Iterator[tuple[bytes, ToEngine]]:
        """Wait up to `timeout_ms` for a message, then yield all that are there, but for those of strangers."""
        if not self._socket.poll(timeout_ms):
            return
        while int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            identity, *parts = self._socket.recv_multipart()
            try:
                message = decode_to_engine(parts[-1])
            except (msgspec.DecodeError, IndexError) as error:
                logger.warning("a message that can't be read was left out: %s", error)
                continue
            if self._recognize(identity, message):
                yield identity, message

    def send(self, identity: bytes, message: ToGateway) -> bool:
        """Send to one gateway; False, and it is forgotten, if it is gone."""
        try:
            self._socket.send_multipart([identity, encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in {zmq.EAGAIN, zmq.EHOSTUNREACH}:
                raise
            self.forget(identity)
            return False
        return True

    def forget(self, identity: bytes) -> None:
        """Let a gateway go."""
        self._known.pop(identity, None)

    def forget_silent(self) -> list[bytes]:
        """Forget those not heard for too long and return them."""
        limit = time.monotonic() - self._silence_limit
        silent = [identity for identity, gateway in self._known.items() if gateway.heard < limit]
        for identity in silent:
            self.forget(identity)
        return silent

    def _recognize(self, identity: bytes, message: ToEngine) -> bool:
        """Note that a gateway was heard; a stranger is told to say Hello."""
        if isinstance(message, Hello):
            self._known[identity] = Gateway(message.engine_id, time.monotonic())
        elif identity in self._known:
            self._known[identity].heard = time.monotonic()
        else:
            self.send(identity, Goodbye())
            return False
        return True
