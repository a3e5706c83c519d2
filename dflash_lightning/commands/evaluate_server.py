"""`evaluate --server`: asks one server, or two after each other, and prints what they did.

in    the options
out   a page, and the file of --json
law   every address is tried before the first prompt; what one server did is shown even where the next fails
"""

import os
from functools import partial

from jsonargparse import Namespace

from dflash_lightning.commands.evaluate_output import prompts_bar, write_json
from dflash_lightning.regenerate.config import ServerSettings
from dflash_lightning.regenerate.key import KEY_VARIABLE


def ask_servers(options: Namespace) -> int:
    """Exit code 0. Raises ServerError, ValueError."""
    from dflash_lightning.evaluation.answered import Served
    from dflash_lightning.evaluation.prompts import read_prompts
    from dflash_lightning.evaluation.served import Asked, ask_server, served_model
    from dflash_lightning.evaluation.served_view import served_text, served_values

    asked = Asked(
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        template_arguments=options.template_arguments,
        concurrency=options.concurrency,
        timeout_s=options.timeout,
    )
    urls, key = [url for url in (options.server, options.against) if url], os.environ.get(KEY_VARIABLE)
    if len(set(ServerSettings(urls=tuple(urls)).bases)) < len(urls):
        raise ValueError(
            f"--against {options.against} is the server of --server itself: asked again, it would answer "
            "from its cache; name another one"
        )
    prompts = read_prompts(options.prompts, category=options.category, limit=options.limit)
    models = [served_model(url, asked, model=options.model, key=key) for url in urls]
    servers: list[Served] = []
    try:
        for url, model in zip(urls, models, strict=True):
            with prompts_bar(f"asking {url}", len(prompts)) as step:
                hear = partial(step, 1)
                servers.append(ask_server(url, prompts, asked, model=model, key=key, on_reply=hear))
    finally:
        if servers:
            print(served_text(servers, asked))
            write_json(options, {"servers": [served_values(served) for served in servers]})
    return 0
