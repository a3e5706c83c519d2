"""Rows of questions as rows of messages.

in    one parsed row; a question stands under `prompt`, or is the first of `turns`
out   the row with its question as `messages`; a row that holds a chat as it is
law   what is asked of a row does not depend on who asks: `evaluate` and `regenerate` read alike
"""

from collections.abc import Mapping, Sequence

FORMS = ("messages", "conversations")


def as_chat(row: object) -> object:
    """A row whose form is not known comes back unchanged."""
    if not isinstance(row, Mapping) or any(row.get(form) for form in FORMS):
        return row
    question = row.get("prompt")
    if question is None and isinstance(turns := row.get("turns"), Sequence) and turns:
        question = turns[0]
    if isinstance(question, str):
        return {**row, "messages": [{"role": "user", "content": question}]}
    # some files call their messages `prompt`
    return {**row, "messages": question} if isinstance(question, Sequence) else row
