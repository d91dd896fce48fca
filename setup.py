"""The parts of the metadata that name the project's address: its links, and those of README.

An index page shows README away from its repository, so that relative links and pictures lead
nowhere there. A release is built with the repository's address, as a code host serves it:

    PROJECT_URL=https://HOST/OWNER/asmtune python -m build

Without it the metadata names no address, and README stays as it is.
"""

import os
import re
from pathlib import Path

from setuptools import setup

url = os.environ.get("PROJECT_URL", "").rstrip("/")
readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
if url:
    relative = r"\]\((?![a-z]+:|#)([^)\s]+)\)"
    readme = re.sub(rf"(!\[[^\]]*){relative}", rf"\1]({url}/raw/HEAD/\2)", readme)
    readme = re.sub(relative, rf"]({url}/blob/HEAD/\1)", readme)
pages = {"Source": "", "Issues": "/issues", "Changes": "/blob/HEAD/CHANGELOG.md"}
setup(
    long_description=readme,
    long_description_content_type="text/markdown",
    project_urls={name: url + path for name, path in pages.items()} if url else {},
)
