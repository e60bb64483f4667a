"""Which exit codes and status codes are wanted, as plain data."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.blocks import NothingDone
from holdfast.blocks.wanted import reader


@pytest.mark.parametrize(
    ("wanted", "accepted", "refused"),
    [
        (404, [404], [200, 405]),
        ("404", [404], [403]),
        ("any", [-1, 0, 599], []),
        ("200..299", [200, 250, 299], [199, 300]),
        ([200, 404], [200, 404], [201, 403]),
        (["200..204", 404, {"greater-than": 598}], [203, 404, 599], [205, 598]),
        ({"less-than": 500}, [499], [500]),
        ({"greater-than-or-equal-to": 200, "lessThan": 300}, [200, 299], [199, 300]),
        ({"in_range": [200, 299]}, [200, 299], [300]),
        ({"less-than-or-equal-to": "300"}, [300], [301]),
        ({"equals": 3}, [3], [4]),
        ({"not": {"in-range": [400, 499]}}, [399, 500], [404]),
        ({"any": [0, {"greater-than": 9}]}, [0, 10], [5]),
        ({"all": [{"greater-than": 1}, {"less-than": 4}]}, [2, 3], [1, 4]),
    ],
)
def test_what_is_accepted(wanted: Any, accepted: list[int], refused: list[int]) -> None:
    test = reader(wanted, "here")
    assert [value for value in accepted if not test(value)] == []
    assert [value for value in refused if test(value)] == []


def _deep() -> Any:
    value: Any = 0
    for _ in range(100):
        value = [value]
    return value


@pytest.mark.parametrize(
    "wanted",
    [
        True, None, [], {}, "ok", "5..2", "1..", 1.5, {"below": 5}, {"in-range": [1]}, {"in-range": [3, 1]},
        {"less-than": "x"}, {"less-than": True}, {"any": 5}, {"all": []}, [None], _deep(),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_for_good_before_anything_is_done(wanted: Any) -> None:
    with pytest.raises(NothingDone, match=r"^here: .*write a number") as caught:
        reader(wanted, "here")
    assert caught.value.permanent
