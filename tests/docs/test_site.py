"""The site builds: no link, anchor or name of the reference leads nowhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock  # PyTorch's

from website.blocks import ROOT

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.slow(seconds=21)  # the build compiles the configs of its live page

MISSING = [
    name for name in ("mkdocs", "material", "mkdocstrings") if not importlib.util.find_spec(name)
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The site, built as `make docs` builds it; once for all processes of a run."""
    if MISSING:
        pytest.skip(f"the site needs {', '.join(MISSING)}: pip install '.[docs]'")
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    built = folder.with_name("site-is-built")
    with FileLock(folder.with_name("site.lock")):
        if not built.exists():
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
                cwd=ROOT,
                env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            built.touch()
    return folder


class Links(HTMLParser):
    """Collects what a page links to and loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.to: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take links, sources and names."""
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        found = values.get("href") or values.get("src")
        if tag in ("a", "img", "script", "link", "iframe") and found:
            self.to.append(found)


def test_no_link_leads_nowhere(site: Path) -> None:
    """Every link within the site leads to a file, and to an anchor where it names one."""
    pages = {}
    for file in site.rglob("*.html"):
        pages[file] = Links()
        pages[file].feed(file.read_text())
    broken = []
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links begin at the server's root
        for link in page.to:
            path, _, anchor = link.partition("#")
            if ":" in path or path.startswith("//"):
                continue
            target = (file.parent / path).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (
                anchor and target in pages and anchor not in pages[target].anchors
            ):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """No page loads anything over the network, or shows marks by which its blocks are checked."""
    words = ("fonts.googleapis", "unpkg.com", "cdn.", "<!-- needs")
    found = [
        (file.name, word)
        for file in site.rglob("*.html")
        for word in words
        if word in file.read_text()
    ]
    assert found == []


def test_reference_has_all_names_and_commands(site: Path) -> None:
    """Every public name has its entry, and every command its heading."""
    import asmtune

    api = (site / "reference" / "api.html").read_text()
    assert [name for name in asmtune.__all__ if f'id="asmtune.{name}"' not in api] == []
    commands = (site / "reference" / "cli.html").read_text()
    assert all(
        f"asmtune {name}<" in commands
        for name in ("prune-report", "tune", "cache ls", "model replay")
    )
    # typer cuts a summary that is too long for a line.
    assert [line for line in commands.splitlines() if line.endswith("...</li>")] == []
