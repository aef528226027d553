"""What can go wrong in a scripted sequence, each at a token: the faults of real engines, to be had when wanted.

`at` is the index of the output token in whose step the fault shows: tokens before it have been sent, it has not.
Faults at the same token come in the order of the script.
"""

import msgspec


class Stall(msgspec.Struct, frozen=True, tag="stall"):
    """No row comes until the sequence is released."""

    at: int


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The sequence ends with an error row instead of the token."""

    at: int
    code: str = "engine_fault"
    message: str = "The engine failed."


class Death(msgspec.Struct, frozen=True, tag="death"):
    """The whole engine goes down instead of sending the step's frame."""

    at: int
    reason: str = "the engine died"


class NotANumber(msgspec.Struct, frozen=True, tag="nan"):
    """The token's logprob is NaN."""

    at: int


class Miscount(msgspec.Struct, frozen=True, tag="miscount"):
    """The row's completion_tokens total is wrong by this much from the token on."""

    at: int
    by: int = 1


Fault = Stall | Failure | Death | NotANumber | Miscount
StepFault = Stall | Failure | Death
