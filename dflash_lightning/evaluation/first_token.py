"""How soon a server's answers began, as the server itself counts it.

in    the texts of its /metrics page, before and after a run
out   mean seconds from a request to its first token, or None
law   pure; counted over the run or not given at all

Of vLLM only: it notes the first token of every answer. SGLang notes when an answer first leaves its
scheduler, which for one that is not streamed may be 50 tokens later.
"""

from math import isfinite

from dflash_lightning.evaluation.speculation import counters

_VLLM = "vllm:time_to_first_token_seconds"


def first_token_s(before: str, after: str) -> float | None:
    """None where the pages do not say, or the counters began anew in between."""
    old, new = counters(before), counters(after)
    if not any(map(isfinite, old.values())) or f"{_VLLM}_sum" not in new or f"{_VLLM}_count" not in new:
        return None
    seconds, answers = (new[name] - old.get(name, 0.0) for name in (f"{_VLLM}_sum", f"{_VLLM}_count"))
    if not (isfinite(seconds) and isfinite(answers) and seconds >= 0 and answers > 0):
        return None
    return seconds / answers
