"""The built site: it asks no other host for anything, no page is heavy, and every page has what it needs.

Set `MEINTORCH_SITE` to the folder of a site that is built already; otherwise one is built here, if MkDocs is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import meintorch

ROOT = Path(__file__).parents[1]
HEAVIEST = 500_000  # bytes of a page with the styles and scripts that it loads, not compressed
ASKS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src", "audio": "src"}


class Page(HTMLParser):
    """What a page loads, where it points, which anchors it has, and how it is labelled."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.unlabelled: list[str] = []
        self.language = ""
        self.headings: list[int] = []
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        wanted = given.get(ASKS.get(tag, ""), "")
        if wanted and (tag != "link" or {"stylesheet", "icon", "preload", "preconnect"} & set(given["rel"].split())):
            self.loads.append(wanted)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "html":
            self.language = given.get("lang", "")
        if "id" in given:
            self.anchors.append(given["id"])
        if tag == "img" and "alt" not in given:
            self.unlabelled.append(given.get("src", "an image"))
        if tag == "svg" and "viewbox" in given and given.get("role") == "img" and not given.get("aria-label"):
            self.unlabelled.append("a picture")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if "MEINTORCH_SITE" in os.environ:
        return Path(os.environ["MEINTORCH_SITE"])
    for package in ("mkdocs", "material", "mkdocstrings", "markdown_exec"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        timeout=600,
    )
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    found = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    assert len(found) == len(list((ROOT / "docs").rglob("*.md"))) + 1  # and the page for what is not found
    return found


def target_of(site: Path, page: Path, link: str) -> Path:
    """Return the file that a link within the site means."""
    path = unquote(urlsplit(link).path)
    file = (site / path.lstrip("/") if path.startswith("/") else page.parent / path) if path else page
    return (file / "index.html" if file.is_dir() else file).resolve()


def is_elsewhere(link: str) -> bool:
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


def test_no_page_asks_another_host_for_anything(pages):
    for path, page in pages.items():
        assert [wanted for wanted in page.loads if is_elsewhere(wanted) and not wanted.startswith("data:")] == [], path


def test_no_style_that_is_loaded_asks_another_host_for_anything(site, pages):
    wanted = {target_of(site, path, load) for path, page in pages.items() for load in page.loads if ".css" in load}
    assert len(wanted) >= 3
    texts = [style.read_text(encoding="utf-8") for style in wanted] + [page.text for page in pages.values()]
    for text in texts:
        assert re.findall(r"""(?:url\(|@import)\s*["']?(?:https?:)?//[^)"']*""", text) == []


def test_everything_that_a_page_loads_is_there_and_light(site, pages):
    for path, page in pages.items():
        files = {target_of(site, path, wanted) for wanted in page.loads if not wanted.startswith("data:")}
        assert all(file.is_file() for file in files), path
        weight = sum(file.stat().st_size for file in {*files, path})
        assert weight < HEAVIEST, f"{path}: {weight} bytes"


def test_every_link_leads_somewhere(site, pages):
    """MkDocs looks at links in the pages' sources; this also sees those that pages compute and that templates make."""
    known = {path.resolve(): set(page.anchors) for path, page in pages.items()}
    for path, page in pages.items():
        for link in page.links:
            if is_elsewhere(link):
                continue
            target = target_of(site, path, link)
            assert target.is_file(), f"{path}: {link}"
            anchor = unquote(urlsplit(link).fragment)
            if anchor and target in known:
                assert anchor in known[target] or anchor == "__skip", f"{path}: {link}"


def test_every_page_has_a_language_a_title_and_one_first_heading(pages):
    for path, page in pages.items():
        assert page.language == "en", path
        assert re.search(r"<title>[^<]+</title>", page.text), path
        assert page.headings.count(1) == 1, path
        jumps = [(a, b) for a, b in zip(page.headings, page.headings[1:], strict=False) if b > a + 1]
        assert jumps == [], f"{path}: headings jump {jumps}"


def test_no_anchor_stands_twice_on_a_page(pages):
    for path, page in pages.items():
        twice = {anchor for anchor in page.anchors if page.anchors.count(anchor) > 1}
        assert twice == set(), path


def test_every_picture_is_described_and_follows_the_colours_of_the_page(pages):
    pictures = 0
    for path, page in pages.items():
        assert page.unlabelled == [], path
        for svg in re.findall(r'<figure class="picture">(.*?)</figure>', page.text, re.DOTALL):
            pictures += 1
            assert "currentColor" in svg
            assert re.findall(r"#[0-9a-f]{6}\b", svg) == [], f"{path}: a colour that stays as it is"
    assert pictures >= 2


def test_every_page_shows_the_version(pages):
    for path, page in pages.items():
        assert f"meintorch {meintorch.__version__}" in page.text, path


def test_what_is_not_found_has_ways_back(site, pages):
    links = [link for link in pages[site / "404.html"].links if not is_elsewhere(link)]
    for wanted in ("getting-started", "reference", "explanation"):
        assert any(wanted in link for link in links)
    assert "Not found" not in pages[site / "404.html"].text


def test_the_helpers_are_no_part_of_the_site(site):
    assert list(site.rglob("helpers*")) == []
    assert not (site / "overrides").exists()


def test_tables_and_outputs_are_there_without_javascript(site, pages):
    """The page of functions is complete as it is served: the script only hides rows."""
    page = pages[site / "reference" / "functions" / "index.html"].text
    assert page.count("<tr>") > 400
    home = pages[site / "index.html"].text
    for shown in ("[1. 7.]", "held-out accuracy", "<figure", "Never silently wrong", "Limits of this version"):
        assert shown in home
