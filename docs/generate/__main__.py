"""`python -m docs.generate`: writes all pages."""

from __future__ import annotations

from docs.generate import FOLDER, PAGES, page

for module, name in PAGES.items():
    (FOLDER / name).write_text(page(module), encoding="utf-8")
