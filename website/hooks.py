"""mkdocs' hooks: pages made from the code, and the repository's files that pages link to.

A page links to a file of the repository as it does on a code host, by its path from the page
(`../kernels/matmul.py`). In the site such files lie below `repository/`, so that no link
leads out of it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from website.blocks import ROOT
from website.reference import api_page, cli_page, explorer_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

BELOW: Final = "repository"
_LINK: Final = re.compile(r"(?P<open>\]\()(?P<to>(?![a-z]+:|#|/)[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_MARK: Final = re.compile(r"<!-- (needs|runs|exits|first|in: |table: |end ).*?-->")
_PAGES: Final = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "cache/README.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference, and every file of the repository that a page links to."""
    from mkdocs.structure.files import File

    generated = {"reference/api.md": api_page(), "reference/cli.md": cli_page()}
    for name, text in generated.items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "explorer.html", content=explorer_page()))
    sources = {
        file.src_uri: Path(str(file.abs_src_path))
        for file in files.documentation_pages()
        if file.src_uri not in generated
    }
    linked = set(_PAGES)
    for uri, path in sources.items():
        linked |= set(_linked(path.read_text(encoding="utf-8"), home_of(uri)))
    for name in _PAGES:
        linked |= set(_linked((ROOT / name).read_text(encoding="utf-8"), name))
    for name in sorted(linked):
        files.append(File.generated(config, f"{BELOW}/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links at where the site has the files, and take marks out."""
    uri = page.file.src_uri
    home = home_of(uri)

    def moved(link: re.Match[str]) -> str:
        to = resolved(link["to"], home)
        if to is None:
            return link[0]
        target = posixpath.relpath(place_of(to), posixpath.dirname(uri) or ".")
        return f"{link['open']}{target}{link['anchor'] or ''})"

    return _MARK.sub("", _LINK.sub(moved, markdown))


def home_of(uri: str) -> str:
    """Give the path in the repository of a page of the site."""
    if uri.startswith(f"{BELOW}/"):
        return uri.removeprefix(f"{BELOW}/")
    return f"docs/{uri}"


def place_of(path: str) -> str:
    """Give the path in the site of a file of the repository."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{BELOW}/{path}"


def resolved(link: str, home: str) -> str | None:
    """Resolve a link to a path in the repository; None where it is not one of its files."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(home), link))
    generated = path in ("docs/reference/api.md", "docs/reference/cli.md")
    return path if generated or (ROOT / path).is_file() else None


def _linked(text: str, home: str) -> list[str]:
    """List the files outside of docs/ that a page's links lead to."""
    targets = (resolved(link["to"], home) for link in _LINK.finditer(text))
    return [path for path in targets if path is not None and not path.startswith("docs/")]
