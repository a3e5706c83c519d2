"""A byte-level tokenizer made in code, and chat templates of every kind that matters for the loss mask."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dflash_lightning.data.conversations import Chat
from dflash_lightning.data.template import ChatFormat, probe_format

END = "<|im_end|>"

# Each message is <|im_start|>role\n content <|im_end|>\n, as in SmolLM2 and Qwen.
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MARKS_WITHOUT_STOP = MARKED.replace(
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}",
    "{{ m.content }}{% endgeneration %}{{ '<|im_end|>' }}",
)
MARKS_WITH_LINE_BREAK = MARKED.replace(
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}", "{{ m.content + '<|im_end|>\n' }}{% endgeneration %}"
)
MARKS_WITH_HEADER = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% generation %}{{ '<|im_start|>assistant\n' + m.content + '<|im_end|>\n' }}{% endgeneration %}"
    "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
    + CHATML
)
# A thinking model: reasoning of earlier answers is left out of what follows.
STRIPS_THINKING = (
    "{% for m in messages %}{% set text = m.content if loop.last or m.role != 'assistant' "
    "else m.content.split('</think>')[-1] %}"
    "{{ '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As Qwen3: the last answer always has a think block, an empty one where the row has none.
ADDS_THINKING = (
    "{% for m in messages %}{% set think = '<think>\n\n</think>\n\n' if loop.last and m.role == 'assistant' "
    "and '</think>' not in m.content else '' %}"
    "{{ '<|im_start|>' + m.role + '\n' + think + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{% endif %}"
)
NO_HEADERS = (  # as Mistral: an answer follows its question at once, so there is nothing to ask with
    "{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
    "{% else %}{{ ' ' + m.content + '<|im_end|>' }}{% endif %}{% endfor %}"
)
NO_GENERATION_PROMPT = CHATML.partition("{% if add")[0]
NO_ASSISTANT = CHATML.replace("in messages", "in messages if m.role != 'assistant'")
NO_STOP = CHATML.replace("<|im_end|>", "")
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML


def tokenizer(template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """256 bytes, then five control tokens, of which <|im_end|> ends an answer."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [AddedToken(name, normalized=False) for name in ("<|endoftext|>", "<|im_start|>", END)]
    )
    core.add_tokens([AddedToken(name, normalized=False) for name in ("<think>", "</think>")])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token="<|endoftext|>")
    wrapped.chat_template = template
    return wrapped


def chat_format(template: str = CHATML, **arguments) -> ChatFormat:
    made = tokenizer(template)
    stops = frozenset({made.convert_tokens_to_ids(END)})
    return probe_format(ChatFormat(tokenizer=made, template=template, arguments=arguments, stop_ids=stops))


def chat(*texts: str, system: str | None = None) -> Chat:
    """Question, answer, question, answer, ..."""
    first = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return Chat([*first, *({"role": roles[i % 2], "content": text} for i, text in enumerate(texts))])


def row(*texts: str) -> dict[str, object]:
    """The same as a row of a file."""
    return {"messages": list(chat(*texts).messages)}
