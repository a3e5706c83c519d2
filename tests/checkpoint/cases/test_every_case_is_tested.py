"""Each of the 22 cases of spec/checkpointing.md, section 4, has a file with its number here."""

import ast
from pathlib import Path

CASES = 22
FOLDER = Path(__file__).parent


def test_every_case_is_tested():
    numbers = sorted(int(path.name[10:12]) for path in FOLDER.glob("test_case_*.py"))
    assert numbers == list(range(1, CASES + 1))


def test_every_test_tells_its_case():
    for path in FOLDER.glob("test_case_*.py"):
        number = path.name[:12]
        tests = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        assert tests, path.name
        assert all(test.name.startswith(f"{number}_") for test in tests), path.name
