"""What operators do to values: equality, order, arithmetic, text. Values in, values out; no scope.

Values are JSON values. Where there is none, `ExpressionError` says why; absence is an error of its own kind.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from .load import MAX_INTEGER
from .nodes import a_type
from .tree import Expr

#: characters of a text, and what a list or map may weigh
MAX_SIZE = 256 * 1024


class ExpressionError(Exception):
    """An expression that has no value. `start` and `end` are offsets into its text."""

    def __init__(self, message: str, node: Expr | None = None, *, absent: bool = False, code: str = "HF0160") -> None:
        super().__init__(message)
        self.message = message
        self.start = node.start if node is not None else 0
        self.end = node.end if node is not None else 0
        self.absent = absent
        self.code = code
        #: the whole text of the expression
        self.text = ""

    def __str__(self) -> str:
        where = self.text[self.start : self.end] if self.end else ""
        if not self.text:
            return self.message
        shown = self.text if len(self.text) <= 80 else f"{self.text[:79]}…"
        if where and where != self.text and f"${{{where}}}" != self.text:
            return f"{self.message} (at `{where[:60]}` in `{shown}`)"
        return f"{self.message} (in `{shown}`)"


def truthy(value: Any) -> bool:
    """False, null, 0 and what is empty are false; a reference is to something long, so it is true."""
    return bool(value)


def same(left: Any, right: Any) -> bool:
    """Equality of settled values: 1 equals 1.0, but true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if type(left) is list and type(right) is list:
        return len(left) == len(right) and all(map(same, left, right))
    if type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, (list, dict)) or isinstance(right, (list, dict)):
        return False
    return bool(left == right)


def distinct(items: list[Any]) -> list[Any]:
    """The first of those that are the same."""
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(_identity(item), item)
    return list(found.values())


def _identity(value: Any) -> Any:
    """Something to look up by: alike for what is the same, and for nothing else."""
    if isinstance(value, list):
        return ("list", *map(_identity, value))
    if isinstance(value, dict):
        return ("map", frozenset((key, _identity(item)) for key, item in value.items()))
    return (type(value) is bool, value)


def to_text(value: Any, node: Expr | None) -> str:
    """A scalar inside of a text."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is float:
        return str(value)
    if value is None:
        raise ExpressionError("null cannot be put into a text", node, absent=True)
    raise ExpressionError(f"{a_type(value)} cannot be put into a text; use `string(…)` or one of its parts", node)


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def compare(operator: str, left: Any, right: Any, node: Expr | None) -> bool:
    if left is None or right is None:
        raise ExpressionError(f"null cannot be compared with `{operator}`", node, absent=True)
    numbers = is_number(left) and is_number(right)
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise ExpressionError(f"{a_type(left)} and {a_type(right)} cannot be compared with `{operator}`", node)
    match operator:
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def checked(number: Any, node: Expr | None) -> Any:
    """A number that can be stored."""
    if type(number) is int:
        if not -MAX_INTEGER - 1 <= number <= MAX_INTEGER:
            raise ExpressionError("the result does not fit into 64 bits", node, code="HF0161")
    elif not math.isfinite(number):
        raise ExpressionError("the result is not a finite number", node)
    return number


def calculate(operator: str, left: Any, right: Any, node: Expr | None) -> Any:
    if is_number(left) and is_number(right):
        try:
            match operator:
                case "+":
                    return checked(left + right, node)
                case "-":
                    return checked(left - right, node)
                case "*":
                    return checked(left * right, node)
                case "/":
                    if type(left) is int and type(right) is int and left % right == 0:
                        return checked(left // right, node)
                    return checked(left / right, node)
                case _:
                    if type(left) is int and type(right) is int:
                        return left % right
                    raise ExpressionError("`%` needs two integers", node)
        except ZeroDivisionError:
            raise ExpressionError("division by zero", node, absent=True) from None
        except OverflowError:
            raise ExpressionError("the result is too large", node, code="HF0161") from None
    if left is None or right is None:
        raise ExpressionError(f"null cannot be used with `{operator}`", node, absent=True)
    if operator == "+" and isinstance(left, (str, list)) and type(left) is type(right):
        if len(left) + len(right) > MAX_SIZE:
            raise ExpressionError("the result is too large", node, code="HF0161")
        return left + right  # type: ignore[operator]
    hint = "; use `string(…)` to join texts" if operator == "+" and str in (type(left), type(right)) else ""
    if not hint and isinstance(left, str) | isinstance(right, str):
        hint = "; use `int(…)` or `float(…)` to read numbers"
    raise ExpressionError(f"`{operator}` does not work on {a_type(left)} and {a_type(right)}{hint}", node)


def contains(whole: Any, part: Any, node: Expr | None, lenient: bool = False) -> bool:
    if isinstance(whole, list):
        return any(same(item, part) for item in whole)
    if isinstance(whole, dict):
        return isinstance(part, str) and part in whole
    if isinstance(whole, str) and isinstance(part, str):
        return part in whole
    if whole is None and lenient:
        return False
    raise ExpressionError(f"{a_type(whole)} cannot contain {a_type(part)}", node, absent=whole is None)
