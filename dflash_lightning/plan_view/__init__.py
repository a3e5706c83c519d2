"""What `plan` shows of a plan: from YAML or flags to facts, and from facts to text, JSON and pictures.

In the order of the work: words, yaml_settings, settings (with lengths and names), facts (with geometry,
resources and run_length), then table, as_json, compare and the pictures.
"""
