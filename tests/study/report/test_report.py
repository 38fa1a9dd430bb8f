"""The report: self-contained, escaped, reproducible, with every number beside it."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from PIL import Image

from replaylab.study import Study
from tests.study.tiny import csv_rows, lose, page_of, pretend, pretended, study


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> Study:
    tiny = pretended(
        tmp_path_factory.mktemp("reported"), 30.0, seeds=10, chunk_size=5, strategies__none={"type": "online"}
    )
    tiny.report()
    return tiny


@pytest.fixture(scope="module")
def page(reported) -> str:
    return (reported.folder / "report.html").read_text()


class Page(HTMLParser):
    """Collects tags, and checks that they close in order."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_it_is_well_formed_and_its_ids_are_unique(page):
    parser = Page()
    parser.feed(page)
    assert parser.open == []
    ids = [attrs["id"] for _, attrs in parser.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for used in re.findall(r'href="#([^"]*)"', page):
        assert used in ids


def test_it_loads_nothing(page):
    parser = Page()
    parser.feed(page)
    assert not any(tag in ("link", "img", "iframe", "object") for tag, _ in parser.tags)
    assert "default-src 'none'" in page
    assert not any("src" in attrs for _, attrs in parser.tags)
    assert "@import" not in page
    assert not re.findall(r"url\((?!#)", page)


def test_every_link_leads_to_a_file_beside_it(page, reported):
    links = {link for link in re.findall(r' href="([^"#]*)"', page) if not link.startswith("http")}
    assert len(links) >= 12
    assert all((reported.folder / link).stat().st_size > 0 for link in links)


def test_words_come_before_figures(page):
    answer = '<p class="answer">Compared with uniform, the average return was higher with prioritized and none.</p>'
    assert page.index(answer) < page.index('<td class="better"><b>▲ higher</b>') < page.index("<svg")
    assert page.count("Compared with uniform") == 1
    assert "Not matched: transitions replayed" in page


def test_text_of_the_study_is_escaped(page):
    assert "A &lt;tiny&gt; study &amp; its &#34;quotes&#34;" in page
    assert "<tiny>" not in page


def test_figures_keep_text_as_text_and_take_the_page_s_colours(page, reported):
    assert ">environment steps</text>" in page
    assert ">prioritized</text>" in page
    svgs = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}", svgs)) <= {"#ffffff"}
    assert "DejaVu" not in svgs
    alone = (reported.folder / "figures" / "learning_curves.svg").read_text()
    assert "var(" not in alone
    assert "#d55e00" in alone or "#0072b2" in alone


def test_every_figure_has_a_web_form_slides_and_numbers(page, reported):
    keys = re.findall(r'<figure id="([^"]*)"', page)
    assert {"learning_curves", "every_run", "levels", "differences", "improvement"} <= set(keys)
    for key in keys:
        alone = ElementTree.parse(reported.folder / "figures" / f"{key}.svg").getroot()
        with Image.open(reported.folder / "figures" / f"{key}.png") as image:
            assert image.info["dpi"] == pytest.approx((160, 160), abs=0.1)
            assert image.width == pytest.approx(float(alone.get("width")) * 160 / 72, abs=4)
            assert image.height == pytest.approx(float(alone.get("height")) * 160 / 72, abs=4)
            darkest, lightest = image.convert("L").getextrema()
        assert darkest < 100
        assert lightest == 255


def test_coordinates_are_short(reported):
    drawn = (reported.folder / "figures" / "every_run.svg").read_text()
    paths = re.findall(r' d="([^"]*)"', drawn)
    assert len(paths) > 30
    assert not re.findall(r"\.\d\d", " ".join(paths))


def test_the_numbers_beside_it_are_whole(reported):
    rows = csv_rows(reported.folder / "tables" / "differences.csv")
    assert [(r["strategy"], r["measure"], r["verdict"]) for r in rows] == [
        ("prioritized", "final", "higher"),
        ("none", "final", "higher"),
        ("prioritized", "area", "higher"),
        ("none", "area", "higher"),
    ]
    assert float(rows[0]["p_max_t"]) == float(rows[0]["p"]) == 2 / 2**10
    assert len(csv_rows(reported.folder / "figures" / "every_run.csv")) == 3 * 10 * 3


def test_the_same_data_make_the_same_bytes(reported):
    files = [f for f in reported.folder.rglob("*") if f.suffix in (".html", ".svg", ".png", ".csv")]
    before = {f: f.read_bytes() for f in files}
    Study.from_folder(reported.folder).report()
    assert {f: f.read_bytes() for f in files} == before


def test_a_part_of_a_study_is_reported_as_a_part(tmp_path, no_sections):
    tiny = pretended(tmp_path, 10.0, seeds=4)
    for chunk in tiny.chunks[2:]:
        tiny.file_of(chunk).unlink()
    page = tiny.report(figure_files=False).read_text()
    assert "Incomplete: 4 of 8 runs are missing." in page
    assert "no test of differences can reach p &lt; 0.05" in page


def test_of_versions_those_that_differ_are_reported(tmp_path, no_sections):
    """A run did not need a package that was not installed."""
    tiny = study(tmp_path, seeds=4)
    pretend(tiny, 10.0, versions=[{"python": "3", "numpy": "2.1"}, {"python": "3", "numpy": "2.2", "ray": "2"}])
    reported = "The runs were made with different library versions"
    assert f"{reported}: numpy 2.1 and 2.2." in tiny.report(figure_files=False).read_text(encoding="utf-8")
    pretend(tiny, 10.0, versions=[{"python": "3"}, {"python": "3", "ray": "2"}])
    assert reported not in tiny.report(figure_files=False).read_text(encoding="utf-8")


@pytest.mark.parametrize("environments", [["CartPole-v1"], ["CartPole-v1", "CartPole-v0"]])
def test_of_one_run_nothing_has_an_interval(tmp_path, environments):
    scores = {name: {"low": 0.0, "high": 500.0} for name in environments}
    page = page_of(tmp_path, 1.0, seeds=1, chunk_size=1, environments=environments, scores=scores)
    assert "A strategy with a single run has no interval" in page
    assert re.search(r"\(one run each\)|one pair has no interval|1 seed each", page)
    assert ("Scores over all environments" in page) == (len(environments) > 1)
    assert not re.findall(r"([+−]?[\d.]+) to \1\b", page)
    assert "∞" not in page


def test_without_the_baseline_nothing_is_compared(tmp_path):
    tiny = pretended(tmp_path, 10.0)
    lose(tiny, lambda chunk: chunk.strategy == "uniform")
    page = tiny.report(figure_files=False).read_text()
    assert "The runs of the baseline, uniform, are missing" in page
    assert "nothing is compared." in page
    assert '<p class="answer">Average return of prioritized: ' in page


def test_two_environments_and_learners(tmp_path, no_sections):
    page = page_of(
        tmp_path,
        10.0,
        environments=["CartPole-v1", "CartPole-v0"],
        learners__slow={"type": "dqn", "learning_rate": 1e-5},
    )
    assert '<th scope="row">CartPole-v0, slow</th>' in page
    assert (
        '<p class="answer">Average return compared with uniform: prioritized was inconclusive on all 4 pairs of '
        "environment and learner.</p>" in page
    )


def test_answer_names_environments_of_each_verdict(tmp_path, no_sections):
    environments = ["CartPole-v1", "Acrobot-v1"]
    tiny = pretended(tmp_path, 30.0, environments=environments, seeds=10, equivalence={"Acrobot-v1": 1e6})
    page = tiny.report(figure_files=False).read_text()
    assert (
        '<p class="answer">Average return compared with uniform: prioritized was higher on CartPole-v1, and '
        "equivalent elsewhere.</p>" in page
    )


def test_many_environments_are_listed_by_name(tmp_path, no_sections):
    names = ["CartPole-v1", "CartPole-v0", "Acrobot-v1", "MountainCar-v0"]
    page = page_of(tmp_path, 10.0, environments=names, seeds=6)
    assert "<dt>environments</dt><dd>[&#34;CartPole-v1&#34;, &#34;CartPole-v0&#34;" in page
    assert "<dt>seeds</dt><dd>0 to 5</dd>" in page


def test_without_figure_files_the_page_has_no_links_to_them(page, tmp_path):
    alone = pretended(tmp_path, 30.0).report(tmp_path / "alone", figure_files=False)
    assert sorted(path.name for path in alone.parent.iterdir()) == ["report.html", "tables"]
    text = alone.read_text()
    assert 'href="figures/' not in text
    assert 'href="figures/' in page
    assert text.count("<svg") > 5


def test_what_an_earlier_page_showed_and_this_one_does_not_goes(tmp_path, no_sections):
    contrast = {"question": "?", "weights": {"uniform": 1.0, "prioritized": -1.0}, "name": "replay"}
    asked = pretended(tmp_path, 30.0, contrasts=[contrast])
    asked.report()
    folder = asked.folder
    (folder / "figures" / "mine.svg").write_text("")
    before = {path for name in ("figures", "tables") for path in (folder / name).iterdir()}
    page = (folder / "report.html").read_text()
    stale = [folder / "figures" / "contrasts_gone.svg", folder / "tables" / "gone.csv"]
    for path in stale:
        path.write_text("")
        page += f'<a href="{path.parent.name}/{path.name}">'
    (folder / "report.html").write_text(page + '<a href="figures/../settings.json"><a href="tables/../../x">')
    asked.report()
    assert {path for name in ("figures", "tables") for path in (folder / name).iterdir()} == before
