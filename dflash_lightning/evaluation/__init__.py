"""How well a drafter drafts: measured, and set beside what it has to beat. Knows no Lightning.

prompts.py reads prompts, measure.py decodes them in turn with every method, figures.py and result.py sum up,
bootstrap.py says how sure a difference between two drafters is; table.py, as_json.py and pictures.py show it.
served.py asks a running server instead, and speculation.py and first_token.py read what it says of itself;
answered.py and served_view.py sum up what it did.
Import from the modules; the package itself imports nothing.
"""
