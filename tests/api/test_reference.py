"""`docs/reference/rest.md` lists the routes there are. Run this file as a module to write the list anew."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.api.reference import routes_markdown
from holdfast.api.routing import make_router
from holdfast.core.errors import Refused

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"
_PART = re.compile(r"(<!-- routes:[^>]*-->\n).*(<!-- /routes -->)", re.DOTALL)


def written(text: str) -> str:
    return _PART.sub(lambda match: match[1] + routes_markdown(make_router()) + match[2], text)


def test_the_list_of_routes_is_true() -> None:
    text = PAGE.read_text()
    assert written(text) == text, "run `python -m tests.api.test_reference`"


def test_every_code_on_the_page_exists() -> None:
    known = {kind.code for kind in _all(Refused)}
    assert set(re.findall(r"HF\d{4}", PAGE.read_text())) <= known


def _all(base: type[Refused]) -> set[type[Refused]]:
    return {base}.union(*(_all(child) for child in base.__subclasses__()))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
