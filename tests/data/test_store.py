import json
import pickle
from itertools import pairwise

import datasets
import numpy as np
import pytest

from dflash_lightning.data.manifest import Manifest
from dflash_lightning.data.prepare import prepare
from dflash_lightning.data.prepare_config import PrepareConfig
from dflash_lightning.data.store import TokenStore
from dflash_lightning.data.writer import require_free
from tests.data import chats
from tests.data.chats import row
from tests.data.test_sources import write_json

MASKS = [[0, 1, 1], [0, 0, 1, 1, 1], [1, 1]]
READY = [
    {"input_ids": list(range(10 * n, 10 * n + len(mask))), "loss_mask": mask} for n, mask in enumerate(MASKS)
]


@pytest.fixture
def made(tmp_path):
    """A store of three ready rows, and one held out."""
    held_out = write_json(tmp_path / "held_out.jsonl", [{"input_ids": [99, 100], "loss_mask": [1, 1]}])
    return make(tmp_path / "store", READY, validation_input=(str(held_out),))


def make(output, rows, template=chats.CHATML, **settings) -> TokenStore:
    path = write_json(output.parent / f"{output.name}.jsonl", rows)
    prepare(PrepareConfig(input=(str(path),), output=str(output), **settings), chats.tokenizer(template))
    return TokenStore.open(output)


def test_rows_come_back_as_they_went_in(made):
    for i, given in enumerate(READY):
        ids, mask = made.row("train", i)
        assert (ids.tolist(), mask.tolist()) == (given["input_ids"], given["loss_mask"])
        assert (ids.dtype, mask.dtype) == (np.int64, np.uint8)
        ids[0] = 7  # the caller's own copy
    assert made.row("train", np.int64(0))[0].tolist() == READY[0]["input_ids"]
    assert made.row("validation", 0)[0].tolist() == [99, 100]


def test_samples_are_lengths_and_supervised_counts_in_order(made):
    samples = made.samples("train")
    assert samples.lengths.tolist() == [3, 5, 2]
    assert samples.supervised.tolist() == [2, 3, 2]


def test_a_split_may_be_empty(tmp_path):
    store = make(tmp_path / "store", READY, validation_share=0.0)
    assert len(store.samples("validation").lengths) == 0
    assert len(store.split("validation")) == 0
    with pytest.raises(ValueError, match="unknown split 'test'; a token store has train and validation"):
        store.split("test")


def test_every_row_knows_where_it_came_from(made):
    assert made.place("train", 1).endswith("store.jsonl:2")
    assert made.place("validation", 0).endswith("held_out.jsonl:1")


def test_a_store_can_be_sent_to_a_worker(made):
    wire = pickle.dumps(made)
    assert len(wire) < 4000  # no rows in it
    assert pickle.loads(wire).row("train", 2)[0].tolist() == made.row("train", 2)[0].tolist()


def test_it_is_a_plain_dataset_for_everybody_else(made):
    rows = datasets.load_from_disk(made.path)["train"]
    assert rows.column_names == ["input_ids", "loss_mask", "length", "supervised", "source", "line"]
    assert rows[0] == {**READY[0], "length": 3, "supervised": 2, "source": 1, "line": 1}


def test_the_manifest_reads_back_equal(made):
    assert Manifest.read_from(made.path) == made.manifest
    assert made.manifest.kept == {"train": 3, "validation": 1}
    assert made.manifest.max_token_id == 100


def test_the_digest_is_the_content_and_nothing_else(tmp_path):
    def digest(name, rows, **settings):
        return make(tmp_path / name, rows, validation_share=0.0, **settings).manifest.digest

    same = digest("a", READY)
    assert digest("b", READY, max_length=100) == same
    others = [
        READY[::-1],
        READY[:2],
        [*READY[:2], {**READY[2], "loss_mask": [0, 1, 1], "input_ids": [20, 21, 22]}],
    ]
    assert len({same, *(digest(f"c{i}", rows) for i, rows in enumerate(others))}) == 4


@pytest.mark.parametrize("rows", [[[1, 2], [3, 4, 5]], [[1, 2, 3], [4, 5]], [[1, 2, 3, 4, 5]]])
def test_the_digest_sees_where_a_row_ends(rows, tmp_path):
    ready = [{"input_ids": ids, "loss_mask": [1] * len(ids)} for ids in rows]
    one_row = {"input_ids": [1, 2, 3, 4, 5], "loss_mask": [1] * 5}
    digests = [make(tmp_path / f"{i}", given, validation_share=0.0).manifest.digest
               for i, given in enumerate((ready, [one_row]))]  # fmt: skip
    assert (digests[0] == digests[1]) == (len(rows) == 1)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (
            "missing",
            FileNotFoundError,
            "no token store at .*store: make it with `python cli.py prepare --input",
        ),
        (
            "no manifest",
            FileNotFoundError,
            "not a complete token store .no manifest.json.: make one with `python",
        ),
        (
            "old version",
            ValueError,
            "another version of prepare .0, this one reads 1.: run `python cli.py prepare",
        ),
        (
            "other rows",
            ValueError,
            "is damaged: it holds .* its manifest says .*; make it again with `python",
        ),
        ("lost file", ValueError, "is damaged .*: make it again with `python cli.py prepare"),
    ],
)
def test_what_is_not_a_whole_store_does_not_open(damage, error, message, made):
    break_store(made.path, damage)
    with pytest.raises(error, match=message):
        TokenStore.open(made.path)


def break_store(path, damage):
    match damage:
        case "missing":
            path.rename(path.with_name("gone"))
        case "no manifest":
            (path / "manifest.json").unlink()
        case "old version":
            rewrite(path, version=0)
        case "other rows":
            rewrite(path, kept={"train": 4, "validation": 1})
        case "lost file":
            next((path / "train").glob("*.arrow")).unlink()


def rewrite(path, **changes):
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))


CHATS = [row(f"Question {n}", f"Answer {n}") for n in range(3)]


def test_the_target_it_was_made_for_is_accepted(tmp_path):
    store = make(tmp_path / "store", CHATS)
    store.require_matches(chats.tokenizer(), vocab_rows=261)
    store.require_matches(
        chats.tokenizer(None), vocab_rows=300, template=chats.CHATML
    )  # padded rows, template file


def test_template_arguments_are_part_of_the_store(tmp_path):
    store = make(
        tmp_path / "store", CHATS, chats.ADDS_THINKING, template_arguments={"enable_thinking": False}
    )
    store.require_matches(chats.tokenizer(chats.ADDS_THINKING), vocab_rows=261)
    assert store.manifest.template_arguments == {"enable_thinking": False}


def test_another_target_is_refused_by_name(tmp_path):
    store = make(tmp_path / "store", CHATS)
    other = chats.tokenizer()
    other.add_tokens(["new"])
    with pytest.raises(
        ValueError, match="other tokenizer: token store .* was made with .*prepare the chats again"
    ):
        store.require_matches(other, vocab_rows=300)
    with pytest.raises(
        ValueError, match="wrong vocabulary: token store .* holds id 258, .* has 258 rows; prepare"
    ):
        store.require_matches(chats.tokenizer(), vocab_rows=258)
    with pytest.raises(ValueError, match="other chat template: .* or name the template file"):
        store.require_matches(chats.tokenizer(chats.MARKED), vocab_rows=261)
    with pytest.raises(ValueError, match="other chat template: .* the target's is None"):
        store.require_matches(chats.tokenizer(None), vocab_rows=261)


def test_ready_tokens_ask_for_no_template(made):
    made.require_matches(chats.tokenizer(None), vocab_rows=261)


def test_only_a_token_store_is_overwritten(tmp_path, made):
    with pytest.raises(ValueError, match="store already exists; choose another --output, or .* --overwrite"):
        require_free(made.path, overwrite=False)
    require_free(made.path, overwrite=True)
    require_free(tmp_path / "new", overwrite=False)
    with pytest.raises(ValueError, match="is not a token store, so --overwrite does not delete it"):
        require_free(tmp_path, overwrite=True)


def test_many_record_batches_are_one_split(tmp_path):
    rows = [{"input_ids": [n, n + 1], "loss_mask": [1, 1]} for n in range(250)] * 3
    store = make(tmp_path / "store", rows, validation_share=0.0)
    firsts = [int(store.row("train", i)[0][0]) for i in (0, 255, 256, 512, 749)]
    assert firsts == [0, 5, 6, 12, 249]
    assert all(a <= b for a, b in pairwise(store.split("train").data.column("line").to_pylist()))
