"""The messages between gateways and the embedded engine's process: tagged structs in msgpack, one a ZMQ message."""

import msgspec

from engines.protocol import BatchTokenOut, EngineInfo, EngineRequest


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """A gateway's first message: it wants to hear of progress and readiness. `engine_id` is its name for the engine."""

    engine_id: str


class Submit(msgspec.Struct, tag="submit", frozen=True):
    """A request."""

    request: EngineRequest


class Abort(msgspec.Struct, tag="abort", frozen=True):
    """Requests to drop."""

    request_ids: list[str]


class Ping(msgspec.Struct, tag="ping", frozen=True):
    """A gateway's sign of life, answered by Pong."""


class Goodbye(msgspec.Struct, tag="goodbye", frozen=True):
    """From a gateway: it leaves. From the engine: it doesn't know the sender, who must say Hello again."""


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """A line for people about the loading of the model."""

    text: str


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The model is loaded; the answer to Hello from then on."""

    info: EngineInfo


class Pong(msgspec.Struct, tag="pong", frozen=True):
    """The engine's step loop is alive."""


ToEngine = Hello | Submit | Abort | Ping | Goodbye
ToGateway = Progress | Ready | Pong | Goodbye | BatchTokenOut

_encoder = msgspec.msgpack.Encoder()
_engine_decoder: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
_gateway_decoder: msgspec.msgpack.Decoder[ToGateway] = msgspec.msgpack.Decoder(ToGateway)


def encode(message: ToEngine | ToGateway) -> bytes:
    """Bytes of a message."""
    return _encoder.encode(message)


def decode_to_engine(data: bytes) -> ToEngine:
    """Read what a gateway sent; msgspec.DecodeError if it is no message."""
    return _engine_decoder.decode(data)


def decode_to_gateway(data: bytes) -> ToGateway:
    """Read what the engine sent; msgspec.DecodeError if it is no message."""
    return _gateway_decoder.decode(data)
