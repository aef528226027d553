"""What requests receive that have no script of their own."""

from engines.scripted.options import ScriptedOptions
from engines.scripted.script import Script

_ORDINARY_IDS = 61


def default_script(options: ScriptedOptions) -> Script:
    """Tokens of the options' text, or some ids from all over the vocabulary, over and over until the request's limit.

    End-of-sequence ids are left out, so that a request gets as many tokens as it asks for.
    """
    ids = options.text_ids or [
        place * options.vocab_size // _ORDINARY_IDS for place in range(min(_ORDINARY_IDS, options.vocab_size))
    ]
    ordinary = [token_id for token_id in ids if token_id not in options.eos_token_ids]
    return Script(token_ids=ordinary or ids, cycle=True)
