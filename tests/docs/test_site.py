"""The site is built without a warning, asks nobody for anything, and names all that there is."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from tools.site.examples import markdown
from tools.site.reference import pages

from clearstate.cli import COMMANDS, run
from tests.docs.pages import DOCS, DOCUMENTS, anchors, blocks, links, prose
from tests.recordings import REPO


class Page(HTMLParser):
    """What a page loads, where its links lead, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag in ("script", "img", "iframe", "source", "embed") and "src" in found:
            self.loads.append(found["src"])
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(found.get("href", ""))
        elif tag == "a" and "href" in found:
            self.leads.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, check=False, cwd=REPO, capture_output=True, text=True, env=_offline())
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return folder


def _offline() -> dict[str, str]:
    """An environment in which whoever asks the network fails at once."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    return {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}


def test_no_page_loads_anything_from_elsewhere_and_no_link_is_broken(site: Path) -> None:
    shown = {path: Page(path) for path in site.rglob("*.html")}
    assert len(shown) > 20
    for path, page in shown.items():
        if path.name == "404.html":  # the only one with links from the root
            continue
        assert not [url for url in page.loads if re.match(r"(\w+:)?//", url)], path
        assert all(url.startswith("data:") or (path.parent / _file(url)).exists() for url in page.loads), path
        assert not [url for url in page.leads if not re.match(r"\w+:", url) and not _leads(path, url, shown)], path
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def _file(url: str) -> str:
    return unquote(re.sub(r"[?#].*", "", url))


def _leads(path: Path, url: str, shown: dict[Path, Page]) -> bool:
    target = (path.parent / _file(url)).resolve() if _file(url) else path
    anchor = unquote(url.partition("#")[2])
    if target.is_dir():
        target /= "index.html"
    return target.exists() and (not anchor or target not in shown or anchor in shown[target].ids | {"__top"})


def test_the_reference_is_that_of_the_public_names() -> None:
    for name, text in pages().items():
        written = (DOCS / "api" / f"{name}.md").read_text(encoding="utf-8")
        assert written == text, "run tools/site/reference.py"


def test_every_public_name_is_in_the_reference_with_an_example(site: Path) -> None:
    for page in (DOCS / "api").glob("*.md"):
        ids = Page(site / "api" / f"{page.stem}.html").ids
        for path in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, name = path.rpartition(".")
            value = getattr(importlib.import_module(module), name)
            own = value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__
            assert ">>>" in (own or ""), f"{path} has no example"
            assert path in ids, path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for link in links(path):
        file, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        if anchor and target.suffix == ".md" and "{ #" not in target.read_text(encoding="utf-8"):
            assert anchor in anchors(target), link


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO)))
def test_tests_that_a_document_names_are_there(path: Path) -> None:
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", prose(path)):
        tree = ast.parse((REPO / file).read_text(encoding="utf-8"))
        assert not name or name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_told_of(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([command, "--help"])
    told = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert not [option for option in options if option not in told]


def test_what_is_added_again_and_again_takes_less_than_20_lines() -> None:
    shown = list(blocks(REPO / "CONTRIBUTING.md", "python"))
    assert len(shown) == 4
    for block in shown:
        statements = [
            line for line in block.text.splitlines() if line.strip() and not line.startswith(("import", "from"))
        ]
        assert len(statements) < 20, block


def test_examples_in_docstrings_are_fenced() -> None:
    assert markdown("Adds.\n\n>>> 1 + 1\n2\n\n>>> 2\n2\n\nIt is quick.") == (
        "Adds.\n\n```pycon\n>>> 1 + 1\n2\n\n>>> 2\n2\n```\n\nIt is quick."
    )
    assert markdown("So::\n\n    code") == "So:\n\n    code"
