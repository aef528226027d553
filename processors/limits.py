"""The operator's bounds on what one request, and all of them together, may cost."""

import msgspec

WHOLE_VOCABULARY = -1
"""As a number of alternatives: all of them, where the operator allows it."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on logprobs.

    max_logprobs: alternatives a position; -1 is the whole vocabulary. max_logprob_entries: positions times values a
    position, over prompt and output of one sequence. max_scoring_requests: requests at once that want logprobs of
    their prompts.
    """

    max_logprobs: int = 20
    max_logprob_entries: int = 4_194_304
    max_scoring_requests: int = 32
