"""Several samples of one prompt, as the single sequences that an engine runs."""

import uuid

import msgspec

from processors.request import PreparedRequest

_HALF_RANGE = 2**63


def samples_of(prepared: PreparedRequest, count: int) -> list[PreparedRequest]:
    """The request `count` times, each with an engine id of its own.

    Samples of a seeded request have seeds of their own, counted up from the given one (vLLM's rule); they wrap at the
    largest 64-bit integer.
    """
    return [prepared, *(_sample(prepared, number) for number in range(1, count))]


def _sample(prepared: PreparedRequest, number: int) -> PreparedRequest:
    sampling = prepared.engine_request.sampling
    if sampling.seed is not None:
        seed = (sampling.seed + number + _HALF_RANGE) % (2 * _HALF_RANGE) - _HALF_RANGE
        sampling = msgspec.structs.replace(sampling, seed=seed)
    request = msgspec.structs.replace(prepared.engine_request, id=uuid.uuid4().hex, sampling=sampling)
    return msgspec.structs.replace(prepared, engine_request=request)
