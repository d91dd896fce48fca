"""What is installed: locked packages with hashes, and a wheel that runs on its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?P<rest>[^\n]*(\n    [^\n]+)*)", re.M
)

FEW = (
    "--axis BLOCK_M=64 --axis BLOCK_N=128 --axis BLOCK_K=64 --axis num_warps=4 --axis num_stages=3"
)


def built(folder: Path) -> Path:
    """The wheel that `pip install .` makes, of a copy without what earlier builds left."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    command += ["--wheel-dir", str(folder / "dist"), str(copied(folder))]
    subprocess.run(command, check=True, timeout=300)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def copied(folder: Path) -> Path:
    """A copy of the files that git has, or would take, without what builds left."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    source = folder / "source"
    for name in names.split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    return source


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, once for all tests."""
    # By its metadata: a look for the module makes setuptools, on Python before 3.12, give this
    # process the standard library's distutils, and TorchInductor's import of setuptools then fails.
    if not any(distributions(name="pip")):
        pytest.skip("no pip in this environment")
    return built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """An environment's `bin` that has the wheel, and of this one the run-time packages alone."""
    folder = wheel.parent / "environment"
    venv.create(folder, with_pip=False)
    (site,) = (folder / "lib").glob("python*/site-packages")
    target = ["--target", str(site), "--no-deps", "--no-index", "-q"]
    install = [sys.executable, "-m", "pip", "install", *target, str(wheel)]
    subprocess.run(install, check=True, timeout=300)
    # A .pth would bring in this environment's editable install: links to its packages do not.
    for name in locked_names("run") | {"torch"}:
        link_files(name, site)
    return folder / "bin"


def locked_names(layer: str) -> set[str]:
    """The packages of one lock file."""
    text = (ROOT / "requirements" / f"{layer}.txt").read_text()
    return {entry["name"] for entry in ENTRY.finditer(text)}


def link_files(name: str, site: Path) -> None:
    """Link the files and folders that a package has installed at the top of site-packages."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return  # of another platform
    for top in {path.parts[0] for path in found.files or () if path.parts[0] != ".."}:
        source, link = Path(str(found.locate_file(top))), site / top
        if source.exists() and not link.exists() and top != "__pycache__":
            link.symlink_to(source)


def ran(command: list[str], cwd: Path) -> str:
    """Run a program of the empty environment, away from the repository; return what it prints."""
    own = {"HOME": str(cwd), "PATH": os.environ["PATH"], "ASMTUNE_CACHE_DIR": str(cwd / "cache")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**own, "TRITON_CACHE_DIR": str(cwd / "triton"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow(seconds=16)
def test_a_wheel_prunes(installed: Path, tmp_path: Path) -> None:
    """The installed command ranks a space and writes the explorer's page."""
    command = ["prune-report", "tiled_matmul", "--target", "H200"]
    command += ["--shape", "M=512,N=512,K=512", *FEW.split()]
    html = [*command, "--format", "html", "-o", "page.html"]
    program = f"from asmtune.cli import main; from asmtune.cli.app import run; run({html}); main()"
    start = [str(installed / "python"), "-c", program]
    assert "Kept, best first" in ran([*start, *command], tmp_path)
    assert '<p id="answer">' in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_a_wheel_has_all_files(wheel: Path) -> None:
    """Every file of the package that git has is in the wheel, and so are the licenses."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    listed = ["git", "ls-files", "asmtune", "kernels", "cache"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    moved = {"kernels": "asmtune/kernels", "cache": "asmtune/shipped"}
    for file in files.splitlines():
        top, _, rest = file.partition("/")
        path = f"{moved.get(top, top)}/{rest}"
        if (ROOT / file).is_file() and not file.endswith(".md"):
            assert path in names, f"{file} is not in the wheel"
    assert any(found.endswith("/LICENSE") and "dist-info" in found for found in names)
    assert "License-Expression: MIT" in text
    assert "Author: the asmtune developers" in text
    assert "Description-Content-Type: text/markdown" in text
    assert re.search(r"^Keywords: .*triton", text, re.MULTILINE)


def test_readme_of_a_release_has_absolute_links() -> None:
    """Built with an address, the metadata's links and README's pictures lead to it."""
    code = "import setuptools, runpy; setuptools.setup = lambda **k: print(k['project_urls'], "
    code += "k['long_description']); runpy.run_path('setup.py')"
    texts = {}
    for url in ("", "https://example.org/asmtune"):
        env = {**os.environ, "PROJECT_URL": url}
        done = [sys.executable, "-c", code]
        texts[url] = subprocess.run(
            done, cwd=ROOT, env=env, capture_output=True, text=True, check=True
        ).stdout
    released = texts["https://example.org/asmtune"]
    assert "'Source': 'https://example.org/asmtune'" in released
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)#]+)", released)
    assert len(links) > 20
    assert [link for _, link in links if "://" not in link] == []
    pictures = [link for mark, link in links if mark]
    assert pictures
    assert all(link.startswith("https://example.org/asmtune/raw/HEAD/docs/") for link in pictures)
    assert "example.org" not in texts[""]
