"""The learner's code, read from the pages of the course: one source for the page, for later pages and for the tests."""

from __future__ import annotations

import re
from pathlib import Path

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial"
KEPT = re.compile(r'^```python [^\n]*title="keep"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def kept(*chapters: str) -> str:
    """Return the blocks with the title "keep" of these chapters, in order, as one program."""
    pages = [(TUTORIAL / f"{chapter}.md").read_text(encoding="utf-8") for chapter in chapters]
    return "\n\n".join([block for page in pages for block in KEPT.findall(page)])
