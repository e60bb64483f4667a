"""What is wrong with text that is not YAML, in words that help: where the mistake is, not where the parser stopped,
and what to write instead.

Most mistakes have one obvious fix on one line. It is shown, and the loader reads on as if it had been made, so that
every mistake of a file is told at once. Nothing here parses: it looks at the lines around the place.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Repair(NamedTuple):
    """A line as it should be. `is_sure`: nobody could mean anything else by it."""

    line: int
    text: str
    is_sure: bool = True


class Finding(NamedTuple):
    line: int
    column: int
    width: int
    message: str
    label: str = ""
    help: str = ""
    repair: Repair | None = None


#: what both parsers of PyYAML say, by kind of mistake
_KINDS = (
    ("colon", re.compile("mapping values are not allowed")),
    ("token", re.compile("cannot start any token|tab character that violates")),
    ("end", re.compile("unexpected end of stream|unexpected document (indicator|separator)")),
    ("flow", re.compile(r"expected ',' or '[\]}]'")),
    ("document", re.compile("expected '?<document start>")),
    ("block", re.compile("did not find expected key|expected '-' indicator|expected <block end>")),
    ("bare", re.compile("could not find expected ':'")),
    ("escape", re.compile("escape|hexa?decimal number")),
    ("name", re.compile("alphabetic or numeric character")),
    ("node", re.compile("expected (the )?node content")),
    ("literal", re.compile("comment or (a )?line break|indentation indicator|chomping")),
    ("directive", re.compile("directive")),
)

HALF = "write the whole character, or its number with `\\U` and eight digits"

_KEY = r"[A-Za-z_$][\w.$-]*"
#: what stands before a value on its line: dashes and keys
_LEAD = re.compile(rf"\s*(?:-[ ]+)*(?:(?:{_KEY}|'[^']*'|\"[^\"]*\")[ ]*:[ ]+)?")
_KEY_LINE = re.compile(rf"(?P<indent>[ ]*)(?P<key>{_KEY})[ ]*:(?:[ ]+(?P<value>.*))?$")
_ITEM = re.compile(r"(?P<indent>[ ]*)(?P<dash>-[ ]+)(?P<text>[^ ].*)$")
_SQUEEZED = re.compile(rf"(?P<lead>[ ]*(?:-[ ]+)?)(?P<key>{_KEY}):(?!//)(?=[^ :])")
_DASH = re.compile(r"-[ ]+")
_COMMENT = re.compile(r"[ \t]#.*$")


def diagnose(lines: list[str], error: Any) -> Finding:
    """What a `MarkedYAMLError` means. Lines and columns count from 0."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    if line >= len(lines):  # libyaml points behind the end
        line = max(len(lines) - 1, 0)
        column = len(lines[line]) if lines else 0
    text = error.problem or "this cannot be read"
    kind = next((name for name, pattern in _KINDS if pattern.search(text)), "")
    opened = error.context_mark if error.context_mark and error.context_mark.line < len(lines) else None
    place = _Place(lines, line, column, (opened.line, opened.column) if opened else None)
    found = getattr(place, kind)() if kind else None
    if found is None:
        context = f" {error.context}" if error.context else ""
        found = Finding(line, column, 1, f"{text}{context}")
    return found


class _Place:
    """Where the parser stopped, and one method for each kind of mistake."""

    def __init__(self, lines: list[str], line: int, column: int, opened: tuple[int, int] | None) -> None:
        self.lines = lines
        self.line = line
        self.column = column
        #: where the thing began that the parser was in
        self.opened = opened
        self.source = lines[line] if lines else ""

    # --- one method for each kind ----------------------------------------------------------------------
    def colon(self) -> Finding:
        """A second `: ` in a value, or a key below something that already has a value."""
        key = re.fullmatch(rf"[ ]*({_KEY})[ ]*", self.source[: self.column])
        if key and (found := self._key_below()):
            return found
        message, label = "an unquoted value cannot contain `: `", "this colon starts a second value"
        lead = _LEAD.match(self.source)
        start = lead.end() if lead else 0
        value = self.source[start:]
        if self.source.startswith("---"):
            help = "`---` stands on a line of its own"
        elif not self.source[:start].strip() and self._content_before(self.line) >= 0:
            began = self._content_before(self.line) + 1
            help = f"the value began on line {began}; quote all of it, or check the indentation"
        elif value[:1] in ("'", '"', "[", "{", "|", ">", ""):
            help = "quote the value, or check the indentation"
        else:
            return self._quoted(self.line, start, self.column, 1, message, label)
        return Finding(self.line, self.column, 1, message, label, help)

    def block(self) -> Finding:
        """Something stands where neither a key nor a dash can be."""
        if self.source[: self.column].strip():
            return self._after_value()
        if found := self._key_below():
            return found
        columns = sorted({at + 1 for text in self.lines[: self.line] if _is_content(text) for at in _starts(text)})
        help = "check the indentation: keys of one map, and the dashes of one list, start in the same column"
        if len(columns) == 1:
            help += f"\nwhat stands above starts in column {columns[0]}"
        elif columns:
            *others, last = [str(column) for column in columns[:6]]
            help += f"\nwhat stands above starts in the columns {', '.join(others)} and {last}"
        return Finding(self.line, self.column, 1, f"nothing begins in column {self.column + 1} that this line could "
                       "belong to", "", help)  # fmt: skip

    def token(self) -> Finding:
        source, column = self.source, self.column
        char = source[column : column + 1]
        if char == "\t":
            before = source[:column]
            if re.fullmatch(r"[ ]*(-[ ]*)*-", before):
                fixed = f"{before} {source[column:].lstrip(chr(9))}"
                return Finding(self.line, column, 1, "a tab cannot follow a dash", "", f"use a space:\n{fixed.strip()}",
                               Repair(self.line, fixed))  # fmt: skip
            count = sum(1 for text in self.lines if re.match(r"[ ]*\t[ \t]*[^ \t]", text))
            help = "use spaces" + (f"; {count} lines of this text are indented with tabs" if count > 1 else "")
            return Finding(self.line, column, 1, "a tab cannot be used for indentation", "", help)
        return self._quoted(self.line, column, column, 1, f"a plain value cannot begin with `{char}`")

    def name(self) -> Finding:
        """`**bold**` or `& co`: no anchor or alias was meant."""
        line, column = self.opened or (self.line, self.column)
        char = self.lines[line][column : column + 1]
        return self._quoted(line, column, column, 1, f"a plain value cannot begin with `{char}`")

    def end(self) -> Finding:
        """A quote that is never closed."""
        line, column = self.opened or (self.line, self.column)
        source = self.lines[line]
        mark = source[column : column + 1]
        fixed = source.rstrip() + mark
        help = f"close it where the text ends:\n{fixed.strip()}"
        repair = Repair(line, fixed, is_sure=False)
        return Finding(line, column, 1, "the quote is never closed", "opened here", help, repair)

    def flow(self) -> Finding:
        """Inside of `[ ]` or `{ }`."""
        line, column = self.opened or (self.line, self.column)
        mark = self.lines[line][column : column + 1]
        close = "]" if mark == "[" else "}"
        within = self.lines[self.line]
        if self.line == line or "${" in within[: self.column + 1]:
            fixed = _quote_expressions(within)
            if fixed != within:
                return Finding(self.line, max(within.rfind("$", 0, self.column + 1), 0), 2,
                               "inside of `[ ]` and `{ }`, texts that hold `${…}` have to be quoted", "",
                               f"quote the text:\n{fixed.strip()}", Repair(self.line, fixed))  # fmt: skip
        if self.line > line or self.column >= len(within.rstrip()):
            help = f"a `{close}` is missing, or the value is text and has to be quoted"
            return Finding(line, column, 1, f"the `{mark}` is never closed", "opened here", help)
        what = "list" if mark == "[" else "map"
        help = f"texts with `,`, `[`, `]`, `{{`, `}}` or `: ` have to be quoted inside of a {what} in `{mark} {close}`"
        return Finding(self.line, self.column, 1, f"expected `,` or `{close}`", "", help)

    def document(self) -> Finding:
        before = self._content_before(self.line)
        if before >= 0 and self.lines[before].startswith("..."):
            help = "begin the next document with `---`"
            return Finding(self.line, self.column, 1, "`...` ended the document", f"line {before + 1} has it", help)
        if self.source[: self.column].strip():
            return self._after_value()
        help = "start all keys of the document in the same column"
        return Finding(self.line, self.column, 1, "this line is further left than the document it follows", "", help)

    def bare(self) -> Finding:
        """A line that is neither a key nor an item."""
        line, column = self.opened or (self.line, self.column)
        source = self.lines[line]
        text = _COMMENT.sub("", source[column:]).rstrip()
        dash = re.match(r"-(?=[^\s-])", text)
        if dash:
            fixed = f"{source[:column]}- {source[column + 1 :]}"
            return Finding(line, column, 1, "a space is missing after the dash", "", f"write\n{fixed.strip()}",
                           Repair(line, fixed))  # fmt: skip
        if re.fullmatch(_KEY, text):
            fixed = f"{source[: column + len(text)]}:{source[column + len(text) :]}"
            return Finding(line, column, len(text), f"a colon is missing after `{text}`", "", f"write\n{fixed.strip()}",
                           Repair(line, fixed, is_sure=False))  # fmt: skip
        squeezed = _SQUEEZED.match(source)
        if squeezed:
            return self._squeezed(line, squeezed)
        before = self._content_before(line)
        item = _ITEM.match(self.lines[before]) if before >= 0 else None
        if item and len(item["indent"]) >= column:
            fixed = f"{item['indent']}{item['dash']}{text}"
            help = f"an item begins with a dash:\n{fixed.strip()}"
            repair = Repair(line, fixed, is_sure=False)
            message = "this line is neither a key nor an item of the list"
            return Finding(line, column, len(text), message, "", help, repair)
        help = "a key is followed by `: `, an item of a list begins with `- `"
        return Finding(line, column, len(text), "this line is neither a key nor an item of a list", "", help)

    def escape(self) -> Finding:
        at = self.source.rfind("\\", 0, self.column + 1)
        at = max(at, 0)
        shown = self.source[at : at + 2]
        fixed = f"{self.source[:at]}\\{self.source[at:]}"
        help = f"in double quotes a backslash begins an escape; double it, or use single quotes:\n{fixed.strip()}"
        message = f"`{shown}` is not an escape that YAML knows"
        if re.match(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", self.source[at:]):
            return Finding(self.line, at, 6, f"`{self.source[at : at + 6]}` is half of a character", "", HALF)
        if shown in ("\\x", "\\u", "\\U"):
            message = f"`{shown}` needs { {'x': 2, 'u': 4, 'U': 8}[shown[1]] } hexadecimal digits of a character"
        return Finding(self.line, at, 2, message, "", help, Repair(self.line, fixed))

    def node(self) -> Finding | None:
        char = self.source[self.column : self.column + 1]
        if char not in ("]", "}", ","):
            return None
        return self._quoted(self.line, self.column, self.column, 1, f"a plain value cannot begin with `{char}`")

    def literal(self) -> Finding:
        line, column = self.opened or (self.line, self.column)
        mark = self.lines[line][column : column + 1]
        help = f"begin the text on the next line, indented; or, if the `{mark}` is part of it, quote it"
        return Finding(self.line, self.column, 1, f"text cannot stand on the line of its `{mark}`", "", help)

    def directive(self) -> Finding:
        message = "a line that begins with `%` is a directive, and this is none that is known"
        return Finding(self.line, 0, 1, message, "", "remove it; `%YAML 1.2` is the only one that makes sense here")

    # --- what several of them share --------------------------------------------------------------------
    def _after_value(self) -> Finding:
        """More text behind a value that had already ended, mostly because of a quote."""
        lead = _LEAD.match(self.source)
        start = lead.end() if lead else 0
        value = self.source[start:].rstrip()
        mark = value[:1]
        if mark in ("'", '"'):
            message, label = "there is more text after the closing quote", "the value ended before this"
            if len(value) > 1 and value.endswith(mark) and mark == "'" and '"' not in value and "\\" not in value:
                fixed = f'{self.source[:start]}"{value[1:-1]}"'
                return Finding(self.line, self.column, 1, message, label, f"use double quotes:\n{fixed.strip()}",
                               Repair(self.line, fixed))  # fmt: skip
            return self._quoted(self.line, start, self.column, 1, message, label)
        if mark in ("*", "&", "!", "%", "@", "`") or value.startswith("{{"):
            mark = "{{" if mark == "{" else mark
            return self._quoted(self.line, start, start, 1, f"a plain value cannot begin with `{mark}`")
        return Finding(self.line, self.column, 1, "the value ended before this", "", "quote the whole value")

    def _key_below(self) -> Finding | None:
        """`key:` on a line that is indented below a text or below a key that has its value already."""
        key = _KEY_LINE.match(self.source)
        above = self._content_before(self.line)
        if key is None or above < 0:
            return None
        indent, name = len(key["indent"]), key["key"]
        before = self.lines[above]
        squeezed = _SQUEEZED.match(before)
        if squeezed:
            return self._squeezed(above, squeezed)
        item = _ITEM.match(before)
        if item and not _KEY_LINE.match(" " * len(item["dash"]) + item["text"]):
            if len(item["indent"]) >= indent:
                return None
            if not _COMMENT.sub("", " " + (key["value"] or "")).strip() and self._ends_list(len(item["indent"])):
                return self._outdented(len(item["indent"]), indent, name)
            text = _COMMENT.sub("", item["text"]).rstrip()
            fixed = f"{item['indent']}{item['dash']}step: {item['text']}"
            shown = f"{item['dash']}step: {text}\n{' ' * len(item['dash'])}{self.source.strip()}"
            return Finding(self.line, indent, len(name), "a step that has keys needs `step:` before its text",
                           f"the text on line {above + 1} is the whole step", f"write\n{shown}",
                           Repair(above, fixed))  # fmt: skip
        own = re.match(rf"(?P<lead>[ ]*(?:-[ ]+)*)(?P<key>{_KEY})[ ]*:[ ]+[^ |>#]", before)
        if own and len(own["lead"]) < indent:
            column = len(own["lead"])
            fixed = " " * column + self.source.strip()
            message = f"`{own['key']}` has a value already, so nothing can be below it"
            help = f"start `{name}` in column {column + 1}, like `{own['key']}`"
            repair = Repair(self.line, fixed, is_sure=False)
            return Finding(self.line, indent, len(name), message, f"indented below line {above + 1}", help, repair)
        return None

    def _outdented(self, dash: int, indent: int, name: str) -> Finding:
        """A key that begins something new, but stands inside of the item before it."""
        keys = (_KEY_LINE.match(text) for text in reversed(self.lines[: self.line]))
        owner = next((match for match in keys if match and len(match["indent"]) <= dash), None)
        column = len(owner["indent"]) if owner else dash
        fixed = " " * column + self.source.strip()
        like = f", like `{owner['key']}:`" if owner else ""
        return Finding(self.line, indent, len(name), f"`{name}:` stands inside of the item above it, which is a text",
                       "indented too far", f"start it in column {column + 1}{like}:\n{fixed.strip()}",
                       Repair(self.line, fixed))  # fmt: skip

    def _squeezed(self, line: int, match: re.Match[str]) -> Finding:
        source = self.lines[line]
        at = match.end()
        fixed = f"{source[:at]} {source[at:]}"
        return Finding(line, at - 1, 1, f"a space is missing after `{match['key']}:`", "", f"write\n{fixed.strip()}",
                       Repair(line, fixed))  # fmt: skip

    def _quoted(self, line: int, start: int, column: int, width: int, message: str, label: str = "") -> Finding:
        source = self.lines[line]
        comment = _COMMENT.search(source, start)
        value = source[start : comment.start() if comment else len(source)].rstrip()
        quoted = quote(value)
        fixed = f"{source[:start]}{quoted}{source[start + len(value) :]}"
        help = f"quote the value:\n{source[:start].lstrip()}{quoted}"
        return Finding(line, column, width, message, label, help, Repair(line, fixed))

    def _content_before(self, line: int) -> int:
        return next((at for at in range(line - 1, -1, -1) if _is_content(self.lines[at])), -1)

    def _ends_list(self, dash: int) -> bool:
        """Whether nothing below the current line belongs to it."""
        after = next((text for text in self.lines[self.line + 1 :] if _is_content(text)), "")
        return _indent(after) <= dash


def quote(value: str) -> str:
    """A value as a quoted scalar, in the quotes that need no escape where there are such."""
    if "'" in value and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return "'" + value.replace("'", "''") + "'"


def _quote_expressions(source: str) -> str:
    """Every unquoted text with `${…}` between `[`, `{`, `,` and `: ` gets quotes."""
    lead = _LEAD.match(source)
    at = start = lead.end() if lead else 0
    out = [source[:start]]
    quoted = ""
    has_expression = False
    is_blank = True

    def close(end: int) -> None:
        text = source[start:end]
        plain = text.strip()
        if has_expression and plain and plain[0] not in "'\"":
            text = text[: len(text) - len(text.lstrip())] + quote(plain) + text[len(text.rstrip()) :]
        out.append(text)

    while at < len(source):
        char = source[at]
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "'\"" and is_blank:
            quoted, is_blank = char, False
        elif source.startswith("${", at):
            end, depth = at + 2, 1
            while end < len(source) and depth:
                depth += {"{": 1, "}": -1}.get(source[end], 0)
                end += 1
            if depth:
                return source
            has_expression, is_blank, at = True, False, end
            continue
        elif char in "[]{}," or source.startswith(": ", at):
            close(at)
            step = 2 if char == ":" else 1
            out.append(source[at : at + step])
            at = start = at + step
            has_expression, is_blank = False, True
            continue
        else:
            is_blank = is_blank and char == " "
        at += 1
    close(len(source))
    return "".join(out)


def braces(source: str, column: int) -> str:
    """How to write a text that begins with `{{`, which YAML takes for a map in a map."""
    start = source.rfind("{{", 0, column + 1)
    if start < 0:
        return ""
    comment = _COMMENT.search(source, start)
    value = source[start : comment.start() if comment else len(source)].rstrip()
    return f"quote the value:\n{source[:start].lstrip()}{quote(value)}"


def _starts(text: str) -> list[int]:
    """Columns in which a line begins something: its dashes, and what follows them."""
    at = _indent(text)
    found = [at]
    while (dash := _DASH.match(text, at)) and len(found) < 40:
        at = dash.end()
        found.append(at)
    return found


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _is_content(text: str) -> bool:
    stripped = text.strip()
    return bool(stripped) and not stripped.startswith("#")
