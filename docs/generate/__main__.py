"""`python -m docs.generate`: writes all pages; with `--check`, only says which are outdated."""

from __future__ import annotations

import sys

from docs.generate import FOLDER, PAGES, page

pages = {FOLDER / name: page(module) for module, name in PAGES.items()}
if "--check" in sys.argv:
    outdated = [file.name for file, text in pages.items() if file.read_text("utf-8") != text]
    sys.exit(f"Outdated, run `make docs`: {', '.join(outdated)}" if outdated else 0)
for file, text in pages.items():
    file.write_text(text, encoding="utf-8")
