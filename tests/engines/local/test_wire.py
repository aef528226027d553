import math

import msgspec
import pytest

from engines.local import wire
from engines.protocol import BatchTokenOut, EngineRequest, LogprobParams, SamplingParams, TokenLogprobs

REQUEST = EngineRequest(
    id="a",
    prompt_token_ids=[1, 2],
    sampling=SamplingParams(max_tokens=1, seed=2**64 - 1, logit_bias={3: 0.5}),
    logprobs=LogprobParams(top_k=2, token_ids=(1,)),
)
FRAME = BatchTokenOut(
    engine_id="e",
    timestamp=1.0,
    request_ids=["a"],
    finishes=[None],
    prompt_tokens=[2],
    token_counts=[1],
    token_ids=[5],
    completion_tokens=[1],
    cached_tokens=[0],
    logprobs=TokenLogprobs(counts=[1], values=[-math.inf], ranks=[3]),
)


@pytest.mark.parametrize(
    "message", [wire.Hello("e"), wire.Submit(REQUEST), wire.Abort(["a"]), wire.Ping(), wire.Goodbye()]
)
def test_what_gateways_send_arrives_unchanged(message: wire.ToEngine) -> None:
    assert wire.decode_to_engine(wire.encode(message)) == message


@pytest.mark.parametrize("message", [wire.Progress("x"), wire.Pong(), wire.Goodbye(), FRAME])
def test_what_the_engine_sends_arrives_unchanged(message: wire.ToGateway) -> None:
    assert wire.decode_to_gateway(wire.encode(message)) == message


@pytest.mark.parametrize("data", [b"", b"\x00", wire.encode(wire.Progress("for gateways")), b"\x81\xa4type\xa3nix"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode_to_engine(data)
