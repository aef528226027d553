"""The heart: requests in (template, tokens, checks), frames out (text, stop, logprobs, one queue a request)."""
