"""Rules of the house that no single file shows. Import directions: `lint-imports`, set up in pyproject."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("dflash_lightning", "callbacks", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if "dflash_lightning/callbacks" not in str(path)  # a link to callbacks/
)


def test_no_file_has_more_than_300_lines():
    long = {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 300}
    assert not long


def test_no_file_is_named_after_nothing():
    vague = {"utils.py", "helpers.py", "common.py", "misc.py"}
    assert not [p for p in SOURCES if p.name in vague]


def roots(path: Path) -> set[str]:
    """Top-level names that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize(
    "path", sorted((ROOT / "dflash_lightning" / "plan").glob("*.py")), ids=lambda p: p.name
)
def test_planning_needs_numpy_and_nothing_else(path):
    allowed = {"numpy", "dflash_lightning", *sys.stdlib_module_names}
    assert roots(path) <= allowed


def test_lightning_is_imported_where_lightning_runs_and_nowhere_else():
    package = ROOT / "dflash_lightning"
    users = {str(p.relative_to(package)) for p in package.rglob("*.py") if "lightning" in roots(p)}
    allowed = {"data/datamodule.py", "dry_run.py", "lightning_cli.py"}
    assert {u for u in users if not u.startswith(("training/", "callbacks/"))} == allowed


def test_boto3_is_imported_by_the_s3_store_only():
    package = ROOT / "dflash_lightning"
    users = {str(p.relative_to(package)) for p in package.rglob("*.py") if "boto3" in roots(p)}
    assert users <= {"checkpoint/stores/s3.py"}


def test_callbacks_have_one_import_name():
    """Importing the top-level folder would load every class a second time."""
    program = "import callbacks"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "import callbacks as dflash_lightning.callbacks.<name>" in done.stderr


def test_help_needs_neither_torch_nor_lightning():
    program = (
        "import sys; from dflash_lightning.main import main; main(['--help']); "
        "assert not {'torch', 'lightning', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True)
