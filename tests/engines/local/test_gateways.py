from collections.abc import Iterator

import pytest
import zmq

from engines.local.gateways import Gateways
from engines.local.wire import Abort, Goodbye, Hello, Ping, Pong, ToEngine, decode_to_gateway, encode

ADDRESS = "inproc://gateways"
WAIT_MS = 10_000


class Ends:
    """A Gateways at one end of a context, any number of dialing sockets at the other."""

    def __init__(self, context: zmq.Context["zmq.Socket[bytes]"]) -> None:
        self._context = context
        self.router = context.socket(zmq.ROUTER)
        self.router.bind(ADDRESS)
        self.dialed: list[zmq.Socket[bytes]] = []

    def dial(self, *messages: ToEngine | bytes) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        socket.connect(ADDRESS)
        self.dialed.append(socket)
        for message in messages:
            socket.send(message if isinstance(message, bytes) else encode(message))
        return socket


@pytest.fixture
def ends() -> Iterator[Ends]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield Ends(context)
    context.destroy(linger=0)


def test_messages_come_with_who_sent_them(ends: Ends) -> None:
    gateways = Gateways(ends.router, 60.0)
    ends.dial(Hello("one"), Abort(["x"]))
    (first, hello), (again, abort) = gateways.receive(WAIT_MS)
    assert first == again
    assert (hello, abort) == (Hello("one"), Abort(["x"]))
    assert [(identity, gateway.engine_id) for identity, gateway in gateways] == [(first, "one")]
    assert list(gateways.receive(0)) == []


def test_strangers_are_told_and_nonsense_is_left_out(ends: Ends) -> None:
    gateways = Gateways(ends.router, 60.0)
    stranger = ends.dial(b"nonsense", Abort(["x"]))
    assert list(gateways.receive(WAIT_MS)) == []
    assert decode_to_gateway(stranger.recv()) == Goodbye()
    assert list(gateways) == []


def test_who_is_silent_is_forgotten_and_who_pings_is_not(ends: Ends) -> None:
    patient, strict = Gateways(ends.router, 60.0), Gateways(ends.router, -1.0)
    ends.dial(Hello("one"), Ping())
    ((identity, _), _) = patient.receive(WAIT_MS)
    assert patient.forget_silent() == []
    ends.dial(Hello("two"))
    ((other, _),) = strict.receive(WAIT_MS)
    assert strict.forget_silent() == [other]
    assert strict.forget_silent() == []
    assert [known for known, _ in patient] == [identity]


def test_who_is_gone_cannot_be_sent_to_and_is_forgotten(ends: Ends) -> None:
    gateways = Gateways(ends.router, 60.0)
    here = ends.dial(Hello("one"))
    ((identity, _),) = gateways.receive(WAIT_MS)
    assert gateways.send(identity, Pong())
    assert decode_to_gateway(here.recv()) == Pong()
    assert not gateways.send(b"never seen", Pong())
    gateways.forget(identity)
    assert list(gateways) == []
