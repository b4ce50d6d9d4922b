"""Selections: filters on a queue's messages.

A selection is a list of terms with commas between; a message matches when all terms hold:

    selection    = term *( "," term )
    term         = "priority:" digit / "priority:" [digit] ".." [digit]
                 / "key:" text / "content-type:" text / "header:" name [ value ]
                 / ( "any(" / "all(" ) term *( "," term ) ")" / "not(" term ")"
    value        = "=" text / ( "<" / "<=" / ">" / ">=" ) bound / ":" [bound] ".." [bound]
    text         = *( any character but "," "*" "\\" / "\\" special ) [ "*" ]
    special      = "," / "*" / "\\" / "(" / ")"
    bound        = a text without an asterisk

An asterisk at the end of a text matches any characters. `priority`, `key` and `content-type` may be
in a list of terms once, and a range needs a bound. A content type is compared without its
parameters and in lower case. A header must be one that messages keep; one matching value of that
name is enough. If all bounds are decimal numbers, a value is compared as a number, and a value that
is not a number does not match; otherwise both are compared as texts, character by character.
Between parentheses a text escapes its own parentheses with a backslash. Whether a message matches
never changes during its life.

A message's name has its priority, its key, and mostly its content type; for the rest its header
block must be read.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Self, TypeAlias, TypeVar

from mq.model.errors import BadName, BadParameter, suggestion
from mq.model.headers import KEPT, Headers, is_kept_name
from mq.model.limits import KEY_WRITTEN_BYTES_MAX, PRIORITY_MAX, SELECT_CHARS_MAX, UUID_CHARS
from mq.model.names import (
    ATTRIBUTES_PATTERN,
    CONTENT_TYPE_DEFAULT,
    EXTENSIONS,
    Key,
    MessageId,
    content_type_of,
)

# The limits of terms in all, and of nested parentheses.
SELECT_TERMS_MAX: Final = 16
SELECT_DEPTH_MAX: Final = 4
# The longest header value that is compared as a number; a longer one is not a number.
NUMBER_CHARS_MAX: Final = 64

PARAMETER: Final = "select"
KINDS: Final = ("priority", "key", "content-type", "header")
"""The kinds of terms."""
GROUPS: Final = ("any", "all", "not")
"""The kinds of groups of terms."""

_ATTRIBUTES: Final = re.compile(ATTRIBUTES_PATTERN)
_GROUP: Final = re.compile(r"([a-z]+)\(")
_TERM: Final = re.compile(r"(?:[^\\,]|\\.)*", re.DOTALL)
_TERM_INSIDE: Final = re.compile(r"(?:[^\\,()]|\\.)*", re.DOTALL)
_KIND: Final = re.compile(r"([^:]*):(.*)", re.DOTALL)
_TEXT: Final = re.compile(r"((?:[^\\*,]|\\[\\*,()])*)(\*?)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\([\\*,()])")
_SPECIAL: Final = re.compile(r"([\\*,()])")
_RANGE: Final = re.compile(r"(?=.*[0-9])([0-9]?)(\.\.)?([0-9]?)")
_HEADER: Final = re.compile(r"([^=<>:]*)(?:([<>]=?|=|:)(.*))?", re.DOTALL)
_BETWEEN: Final = ":.."
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE]-?[0-9]{1,3})?")
_TCHAR: Final = r"[!#$%&'*+.^_`|~0-9a-z-]"
_CONTENT_TYPE: Final = re.compile(rf"{_TCHAR}+/{_TCHAR}+")
_CONTENT_TYPE_BEGINNING: Final = re.compile(rf"{_TCHAR}+/{_TCHAR}*")
_HEADER_NAME: Final = re.compile(rf"{_TCHAR}+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

T = TypeVar("T", Decimal, str)


@dataclass(frozen=True, slots=True)
class _Wanted:
    text: str
    is_beginning: bool

    def holds(self, found: str) -> bool:
        return found.startswith(self.text) if self.is_beginning else found == self.text

    def __str__(self) -> str:
        return _escaped(self.text) + ("*" if self.is_beginning else "")


@dataclass(frozen=True, slots=True)
class _WantedHeader:
    """A header by its lower-case name, and its value; any value if the value is the empty
    prefix.
    """

    name: str
    value: _Wanted

    def holds(self, headers: Headers) -> bool:
        return any(self.value.holds(value) for name, value in headers if name.lower() == self.name)

    def __str__(self) -> str:
        value = "" if self.value == _WHATEVER else f"={self.value}"
        return _escaped(self.name) + value


_WHATEVER: Final = _Wanted("", is_beginning=True)


@dataclass(frozen=True, slots=True)
class _Bound:
    """One end of a range of values; `is_open`: the end is not part of it."""

    text: str
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class _HeaderRange:
    """A header by its lower-case name, and the range of its value, with at least one bound."""

    name: str
    low: _Bound | None
    high: _Bound | None

    def holds(self, headers: Headers) -> bool:
        values = [value for name, value in headers if name.lower() == self.name]
        ends = [each for each in (self.low, self.high) if each is not None]
        if all(_number(each.text) is not None for each in ends):
            numbers = [number for each in values if (number := _number(each)) is not None]
            return any(self._has(number, _number) for number in numbers)
        return any(self._has(value, str) for value in values)

    def _has(self, value: T, as_value: Callable[[str], T | None]) -> bool:
        low = None if self.low is None else as_value(self.low.text)
        high = None if self.high is None else as_value(self.high.text)
        if self.low is not None and low is not None and not low < value:
            return low == value and not self.low.is_open and (high is None or value <= high)
        if self.high is None or high is None or value < high:
            return True
        return value == high and not self.high.is_open

    def __str__(self) -> str:
        low = "" if self.low is None else _escaped(self.low.text)
        high = "" if self.high is None else _escaped(self.high.text)
        if self.low is not None and self.high is not None:
            said = _BETWEEN.replace("..", f"{low}..{high}")
        elif self.low is not None:
            said = f">{'' if self.low.is_open else '='}{low}"
        else:
            said = f"<{'' if self.high is not None and self.high.is_open else '='}{high}"
        return _escaped(self.name) + said


_Header: TypeAlias = _WantedHeader | _HeaderRange


_Parts: TypeAlias = tuple[str | None, str | None, str | None, str | None]
"""The parts of a name beside its uuid: priority, key as written, bytes of the header block,
extension. None: absent.
"""

_BARE: Final[_Parts] = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class _Group:
    """Terms between parentheses: `any`, `all` or `not` of them."""

    kind: str
    of: "tuple[Selection, ...]"

    def by_name(self, parts: _Parts) -> bool | None:
        """Whether the group matches, by the name alone; None: the header block decides."""
        found = [each.by_name(parts) for each in self.of]
        if self.kind == "not":
            return None if found[0] is None else not found[0]
        if self.kind == "all":
            return found[0]
        return True if True in found else None if None in found else False

    def by_block(self, parts: _Parts, headers: Headers) -> bool:
        is_any = any(each.by_block(parts, headers) for each in self.of)
        return is_any is not (self.kind == "not")

    @property
    def priorities(self) -> tuple[int, int]:
        """The lowest and the highest priority of matching messages."""
        if self.kind == "not":
            return 0, PRIORITY_MAX
        lowest, highest = zip(*(each.priorities for each in self.of), strict=True)
        return min(lowest), max(highest)

    def __str__(self) -> str:
        return f"{self.kind}({','.join(each.text for each in self.of)})"


@dataclass(slots=True)
class _Terms:
    """The terms that were read so far."""

    priorities: tuple[int, int] | None = None
    key: _Wanted | None = None
    content_type: _Wanted | None = None
    headers: set[_Header] = field(default_factory=set)
    groups: set[_Group] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter on messages, made by `parse`. Equivalent selections are equal and have the same
    `text`, which `parse` accepts.
    """

    text: str
    priorities: tuple[int, int] = field(compare=False, repr=False)
    """The lowest and the highest priority of matching messages."""
    _key: _Wanted | None = field(compare=False, repr=False)
    _content_type: _Wanted | None = field(compare=False, repr=False)
    _headers: tuple[_Header, ...] = field(compare=False, repr=False)
    _groups: tuple[_Group, ...] = field(compare=False, repr=False)
    _written_key: str = field(compare=False, repr=False)
    """The key as names hold it."""
    _extensions: frozenset[str] = field(compare=False, repr=False)
    """The extensions of wanted content types; "" stands for the default type."""
    _bare: bool = field(compare=False, repr=False)
    """Whether a message without attributes matches."""

    @classmethod
    def parse(cls, *texts: str) -> Self:
        """Parses the terms of all texts as one selection. Raises BadParameter, which says where the
        texts, joined by commas, are wrong.
        """
        if sum(map(len, texts)) > SELECT_CHARS_MAX:
            raise _bad(f"no longer than {SELECT_CHARS_MAX} characters")
        terms = _Terms()
        reader = _Reader(cls._of)
        for text in texts or ("",):
            reader.read(text, terms)
        return cls._of(terms)

    @classmethod
    def of(cls, *, priority: str | None, key: str | None) -> Self:
        """The selection of terms of priority and key, where given. Raises BadParameter that names
        the parameter.
        """
        terms = _Terms()
        said = "priority"
        try:
            terms.priorities = None if priority is None else _priorities(priority)
            said = "key"
            terms.key = None if key is None else _wanted_key(key)
        except BadParameter as error:
            raise BadParameter(said, error.expected) from None
        return cls._of(terms)

    @classmethod
    def _of(cls, terms: _Terms) -> Self:
        key, content_type = terms.key, terms.content_type
        headers = tuple(sorted(terms.headers, key=str))
        groups = tuple(sorted(terms.groups, key=str))
        ranges = [terms.priorities or (0, PRIORITY_MAX), *(each.priorities for each in groups)]
        lowest, highest = max(each[0] for each in ranges), min(each[1] for each in ranges)
        said = [] if terms.priorities is None else [f"priority:{_print_range(*terms.priorities)}"]
        said += [] if key is None else [f"key:{key}"]
        said += [] if content_type is None else [f"content-type:{content_type}"]
        said += [f"header:{header}" for header in headers]
        said += map(str, groups)
        extensions = frozenset(
            extension
            for extension in ("", *EXTENSIONS)
            if content_type is None or content_type.holds(content_type_of(extension))
        )
        bare = lowest <= 0 <= highest and key is None and "" in extensions and not headers
        return cls(
            ",".join(said),
            (lowest, highest),
            key,
            content_type,
            headers,
            groups,
            "" if key is None else _written(key.text),
            extensions,
            bare and all(each.by_name(_BARE) for each in groups),
        )

    def matches_name(self, name: str) -> bool | None:
        """Whether the message with this name, an id as text, matches; None: its header block
        decides. False for a text that is not an id.
        """
        if len(name) == UUID_CHARS:
            return self._bare
        match = _ATTRIBUTES.fullmatch(name, UUID_CHARS)
        return False if match is None else self.by_name(_parts(match))

    def by_name(self, parts: _Parts) -> bool | None:
        """Whether a message with these parts of a name matches; None: its header block decides."""
        priority, key, block, extension = parts
        lowest, highest = self.priorities
        if not lowest <= int(priority or 0) <= highest or not self._takes_key(key):
            return False
        if block is None or extension is not None:
            if (extension or "") not in self._extensions:
                return False
            is_told = not self._headers
        else:
            is_told = not self._headers and self._content_type is None
        if block is None and self._headers:
            return False
        for group in self._groups:
            by_name = group.by_name(parts)
            if by_name is False:
                return False
            is_told = is_told and by_name is True
        return True if is_told else None

    def matches(self, message_id: MessageId, headers: Headers) -> bool:
        """Whether the message with these headers matches."""
        by_name = self.matches_name(message_id.text)
        return self.matches_headers(message_id.text, headers) if by_name is None else by_name

    def matches_headers(self, name: str, headers: Headers) -> bool:
        """Whether a message with these headers matches, if its name does not decide."""
        match = _ATTRIBUTES.fullmatch(name, UUID_CHARS)
        return match is not None and self.by_block(_parts(match), headers)

    def by_block(self, parts: _Parts, headers: Headers) -> bool:
        """Whether a message with these parts of a name and these headers matches."""
        by_name = self.by_name(parts)
        if by_name is not None:
            return by_name
        # An extension decides the content type.
        if self._content_type is not None and parts[-1] is None:
            kept = [value for header, value in headers if header.lower() == "content-type"]
            said = kept[-1] if kept else CONTENT_TYPE_DEFAULT
            if not self._content_type.holds(said.partition(";")[0].strip().lower()):
                return False
        return all(wanted.holds(headers) for wanted in self._headers) and all(
            group.by_block(parts, headers) for group in self._groups
        )

    def _takes_key(self, written: str | None) -> bool:
        if self._key is None:
            return True
        if written is None:
            return False
        if self._key.is_beginning:
            return written.startswith(self._written_key)
        return written == self._written_key

    def __str__(self) -> str:
        return self.text


class _Reader:
    """Reads the texts of one selection one after the other."""

    def __init__(self, make: Callable[[_Terms], Selection]) -> None:
        self._make = make
        self._text = ""
        self._at = 0
        self._before = 0
        """The number of characters of earlier texts, with their commas."""
        self._count = 0

    def read(self, text: str, terms: _Terms) -> None:
        """Adds the terms of a text. Raises BadParameter."""
        self._text, self._at = text, 0
        self._read_list(terms, 0)
        if self._next():
            raise self._wrong(
                self._at,
                "written with backslashes only before a comma, an asterisk, a backslash or a "
                "parenthesis, and with a comma behind a closing parenthesis",
            )
        self._before += len(text) + 1

    def _read_list(self, terms: _Terms, depth: int) -> None:
        self._read_term(terms, depth)
        while self._next() == ",":
            self._at += 1
            self._read_term(terms, depth)

    def _read_term(self, terms: _Terms, depth: int) -> None:
        began = self._at
        self._count += 1
        if self._count > SELECT_TERMS_MAX:
            raise self._wrong(began, f"1 to {SELECT_TERMS_MAX} terms")
        if (opening := _GROUP.match(self._text, began)) is not None:
            terms.groups.add(self._read_group(opening, depth + 1))
            return
        match = (_TERM_INSIDE if depth else _TERM).match(self._text, began)
        said = "" if match is None else match[0]
        term = _KIND.fullmatch(said)
        if term is None:
            raise self._wrong(
                began, "terms such as priority:5.. or key:PREFIX*, separated by commas"
            )
        try:
            _add(terms, term[1], term[2])
        except BadParameter as error:
            raise self._wrong(began, error.expected) from None
        self._at = began + len(said)

    def _read_group(self, opening: re.Match[str], depth: int) -> _Group:
        began, kind = self._at, opening[1]
        if kind not in GROUPS:
            raise self._wrong(began, f"any(...), all(...) or not(...){suggestion(kind, GROUPS)}")
        if depth > SELECT_DEPTH_MAX:
            raise self._wrong(
                began, f"given with no more than {SELECT_DEPTH_MAX} parentheses in each other"
            )
        self._at = opening.end()
        self._count -= 1  # Only the terms inside count.
        lists = [_Terms()]
        if kind == "all":
            self._read_list(lists[0], depth)
        else:
            self._read_term(lists[0], depth)
        while kind == "any" and self._next() == ",":
            self._at += 1
            lists.append(_Terms())
            self._read_term(lists[-1], depth)
        if self._next() != ")":
            raise self._wrong(
                self._at,
                f"{kind}(, {'one term' if kind == 'not' else 'terms with commas between'} and ), "
                "with a backslash before a parenthesis of a text",
            )
        self._at += 1
        return _Group(kind, tuple(sorted({self._make(each) for each in lists}, key=str)))

    def _next(self) -> str:
        """The next character; "" at the end."""
        return self._text[self._at : self._at + 1]

    def _wrong(self, at: int, expected: str) -> BadParameter:
        return _bad(f"{expected}; it is wrong from character {self._before + at + 1} on")


def _parts(match: re.Match[str]) -> _Parts:
    return match["priority"], match["key"], match["headers"], match["extension"]


def _add(terms: _Terms, kind: str, value: str) -> None:
    """Adds one term. Raises BadParameter."""
    if kind == "priority" and terms.priorities is None:
        terms.priorities = _priorities(value)
    elif kind == "key" and terms.key is None:
        terms.key = _wanted_key(value)
    elif kind == "content-type" and terms.content_type is None:
        terms.content_type = _wanted_content_type(value)
    elif kind == "header":
        terms.headers.add(_wanted_header(value))
    elif kind in KINDS:
        raise _bad(f"given with only one term of {kind}, or with any(...) around them")
    else:
        raise _bad(f"terms of priority:, key:, content-type: or header:{suggestion(kind, KINDS)}")


def _number(text: str) -> Decimal | None:
    """A decimal number; None: the text is not one."""
    text = text.strip(" ")
    if len(text) > NUMBER_CHARS_MAX or _NUMBER.fullmatch(text) is None:
        return None
    return Decimal(text)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _bad(expected: str) -> BadParameter:
    return BadParameter(PARAMETER, expected)


def _wanted(value: str) -> _Wanted:
    match = _TEXT.fullmatch(value)
    if match is None:
        raise _bad(
            "written with an asterisk only at a term's end, and with a backslash before any other "
            "asterisk, comma or backslash"
        )
    return _Wanted(_ESCAPED.sub(r"\1", match[1]), bool(match[2]))


def _priorities(value: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(value)
    if match is not None and (match[2] or not match[3]):
        lowest = int(match[1] or 0)
        highest = int(match[3] or PRIORITY_MAX) if match[2] else lowest
        if lowest <= highest:
            return lowest, highest
    raise _bad("priority: and a digit, or a range such as 3..7, 5.. or ..3")


def _print_range(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest}..{highest}"


def _wanted_key(value: str) -> _Wanted:
    wanted = _wanted(value)
    if not (wanted.is_beginning and not wanted.text):
        try:
            Key.parse(wanted.text)
        except BadName:
            raise _bad(
                f"key: and a key, or the beginning of one and *, of 1 to {KEY_WRITTEN_BYTES_MAX} "
                "bytes as written in a name"
            ) from None
    return wanted


def _written(beginning: str) -> str:
    """A key, or a prefix of one, as names hold it: byte by byte, so that a prefix stays a
    prefix.
    """
    return Key(beginning).written()


def _wanted_content_type(value: str) -> _Wanted:
    # A plus in a query is a space, and a media type has none.
    wanted = _wanted(value.replace(" ", "+").lower())
    form = _CONTENT_TYPE_BEGINNING if wanted.is_beginning else _CONTENT_TYPE
    if form.fullmatch(wanted.text) is None:
        raise _bad(
            "content-type: and a media type without parameters, or the beginning of one and *, "
            "such as text/*"
        )
    return wanted


def _wanted_header(value: str) -> _Header:
    match = _HEADER.fullmatch(value)
    name_text, sign, value_text = match.groups() if match is not None else (value, None, "")
    name = _wanted(name_text.lower())
    is_name = not name.is_beginning and _HEADER_NAME.fullmatch(name.text) is not None
    if not is_name or not is_kept_name(name.text):
        raise _bad(
            "header: and the name of a header that messages keep: ce-..., x-attribute-..., "
            "traceparent, tracestate or content-encoding" + suggestion(name.text, KEPT)
        )
    if sign is None:
        return _WantedHeader(name.text, _WHATEVER)
    if sign == "=":
        return _WantedHeader(name.text, _checked(_wanted(value_text)))
    if sign in _BETWEEN:
        low, dots, high = value_text.partition("..")
        if not dots or not (low or high):
            raise _bad("header:, a name, and a range such as :5..10, :5.. or :..10")
        return _HeaderRange(name.text, *(_bound(each) if each else None for each in (low, high)))
    bound = _bound(value_text, is_open=len(sign) == 1)
    low_high = (bound, None) if sign[0] == ">" else (None, bound)
    return _HeaderRange(name.text, *low_high)


def _bound(text: str, is_open: bool = False) -> _Bound:
    wanted = _checked(_wanted(text))
    if wanted.is_beginning or not wanted.text:
        raise _bad("written with a number or a text, without an asterisk, as a bound")
    return _Bound(wanted.text, is_open)


def _checked(wanted: _Wanted) -> _Wanted:
    try:
        wanted.text.encode()
    except UnicodeEncodeError:
        raise _bad("in UTF-8") from None
    if _CONTROL.search(wanted.text):
        raise _bad("free of control characters")
    return wanted
