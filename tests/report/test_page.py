"""The page needs nothing but itself, hides no verdict, and shows what logs hold as text."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import yaml

from dflash_lightning.report.facts import duration, key_figures, settings_of, short
from dflash_lightning.report.page import compare_page, run_page
from dflash_lightning.report.read import read_run
from dflash_lightning.report.run import Run
from dflash_lightning.report.verdict import Verdict
from tests.report.drawn_runs import write_full_run, write_small_run

HOSTILE = '<script>alert("x")</script>'
VERDICTS = [
    Verdict(
        "instability",
        "instability: the loss rose <fast> at step 720",
        ["norm 12 & rising", HOSTILE],
        [720, 750],
    ),
    Verdict("mix", "the movement is the mix of buckets"),
]


class Page(HTMLParser):
    """What a browser would ask for, and what it would show."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.ids, self.shown = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "action"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_data(self, data):
        self.shown += data


def test_the_page_asks_for_nothing(full_page):
    page = Page(full_page)
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert "http" not in full_page
    assert "@import" not in full_page
    assert "url(" not in full_page.replace("url(#", "")


def test_every_colour_follows_the_readers_appearance(full_page):
    style, body = full_page.split("</style>", 1)
    assert "prefers-color-scheme:dark" in style
    assert not re.search(r"#[0-9a-f]{6}\b", body)


def test_identifiers_are_unique(full_page):
    ids = Page(full_page).ids
    assert len(ids) == len(set(ids))


def test_verdicts_stand_first_with_evidence_and_steps(full_page):
    shown = Page(full_page).shown
    assert shown.index("The loss rose <fast> at step 720") < shown.index("The movement is the mix")
    assert shown.index("The movement is the mix") < shown.index("Key figures") < shown.index("Figures")
    assert "norm 12 & rising" in shown
    assert "Steps that the verdicts name: instability" in shown
    assert "--steps 697:743 --text" in shown  # two percent of the run around the first step


def test_what_logs_hold_is_text(full_page):
    assert HOSTILE in Page(full_page).shown
    assert "<script" not in full_page


def test_every_figure_has_a_caption(full_page):
    tags = Page(full_page).tags
    assert tags.count("figure") == tags.count("figcaption") == 15
    assert tags.count("svg") == 30  # one for a desktop, one for a phone


def test_settings_come_from_a_fixed_list(full_run, full_page):
    settings = settings_of(full_run)
    assert settings["target"] == "some/target-8b"
    assert settings["order"] == "Credit"
    assert settings["packing"] == "PoolSorted(pool_batches=64)"
    assert settings["bucket edges"] == "512, 1,024, 2,048, 4,096"
    assert "do-not-show-me" not in full_page


def test_no_secret_of_a_config_reaches_the_page(tmp_path):
    """Also where a setting of the list has one inside: in an address, or under a name that says so."""
    config = {
        "model": {
            "target": "https://me:SECRET-1@host/model?token=SECRET-2",
            "objective": {"class_path": "a.B", "init_args": {"api_key": "SECRET-3", "tau": 2}},
        },
        "data": {
            "store": "s3://AKIA:SECRET-4@bucket/store",
            "plan": {"order": {"class_path": "a.C", "init_args": {"password": "SECRET-5"}}},
        },
        "trainer": {"logger": {"api_key": "SECRET-6"}},
    }
    write_small_run(tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    run = read_run(tmp_path)
    assert settings_of(run)["objective"] == "B(api_key=***, tau=2)"
    assert "SECRET" not in run_page(run, [])
    assert "SECRET" not in compare_page({"a": run, "b": run}, {"a": [], "b": []})


@pytest.mark.parametrize("broken", ["folder", "binary", "tag", "list", "empty"])
def test_a_config_that_cannot_be_used_costs_the_settings_alone(tmp_path, broken):
    write_small_run(tmp_path)
    path = tmp_path / "config.yaml"
    path.unlink(missing_ok=True)
    if broken == "folder":
        path.mkdir()
    else:
        path.write_bytes(
            {"binary": b"\x80\0\xff", "tag": b"a: !!python/x {}", "list": b"- 1", "empty": b""}[broken]
        )
    assert "target" not in settings_of(read_run(tmp_path))


def test_key_figures_are_those_of_the_logs(full_run):
    figures = key_figures(full_run)
    assert figures["steps"] == "1,200"
    assert figures["tokens"] == "144 M"
    assert figures["skipped steps"] == "2"
    best = np.nanmax(full_run.validation["val/tau"])
    assert figures["validation tau, best"] == f"{best:.3f}"


def test_a_small_run_says_what_is_missing(tmp_path):
    page = run_page(read_run(write_small_run(tmp_path)), [Verdict("unknown", "too little")])
    shown = Page(page).shown
    assert "gradient norm (GradNorm)" in shown
    assert shown.count("optimizer step") > 0
    assert settings_of(read_run(tmp_path)) == {}


def test_a_config_that_is_no_yaml_is_said(tmp_path):
    write_small_run(tmp_path)
    (tmp_path / "config.yaml").write_text("a: [1")
    assert settings_of(read_run(tmp_path)) == {"settings": "config.yaml cannot be read"}


@pytest.mark.slow
def test_a_long_run_makes_no_large_page():
    rng = np.random.default_rng(0)
    count = 20_000
    names = ("train/loss", "train/grad_norm", *(f"loss/bucket_{i}" for i in range(6)))
    run = Run(
        name="long",
        path="long",
        steps=np.arange(1.0, count + 1),
        values={name: 2 + 0.1 * rng.normal(size=count) for name in names},
        times=np.arange(count) * 1.0,
        val_steps=np.empty(0),
        validation={},
    )
    run.values["train/loss"][7_777] = 5.43  # a single step among thousands per pixel
    assert len(run_page(run, [])) < 1_000_000


@pytest.mark.slow
def test_runs_side_by_side(full_run, tmp_path):
    small = replace(read_run(write_small_run(tmp_path)), name=HOSTILE)
    few = {name: full_run.values[name] for name in ("train/loss", "train/grad_norm")}
    runs = {"full": replace(full_run, values=few), HOSTILE: small}
    text = compare_page(runs, {"full": VERDICTS, HOSTILE: [Verdict("steady", "all is calm")]})
    page = Page(text)
    assert "<script" not in text
    assert all(link.startswith("#") for link in page.links)
    assert page.tags.count("table") == 1
    assert all(word in page.shown for word in ("instability", "All is calm", "validation tau, best", HOSTILE))
    assert "Loss per optimizer step" in page.shown


@pytest.mark.parametrize(
    ("number", "text"), [(0.5, "0.5"), (950.0, "950"), (12_345.0, "12.3 k"), (4.8e8, "480 M"), (2e12, "2 T")]
)
def test_numbers_are_short(number, text):
    assert short(number) == text


def test_durations_read_as_people_say_them():
    assert duration(np.array([0.0, np.nan, 65.0])) == "1 min 05 s"
    assert duration(np.array([0.0, 3_600 * 30 + 120.0])) == "30 h 02 min"
    assert duration(np.array([1.0])) == ""


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    return read_run(write_full_run(tmp_path_factory.mktemp("full"), num_rows=120))


@pytest.fixture(scope="module")
def full_page(full_run):
    return run_page(replace(full_run, name=HOSTILE), VERDICTS)
