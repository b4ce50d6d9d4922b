"""Selections: which of a queue's messages a consumer takes.

A selection is terms with commas between, and a message is of it when all of them hold:

    selection    = term *( "," term )
    term         = "priority:" digit / "priority:" [digit] ".." [digit]
                 / "key:" text / "content-type:" text / "header:" name [ "=" text ]
    text         = *( any character but "," "*" "\\" / "\\" ( "," / "*" / "\\" ) ) [ "*" ]

An asterisk at the end of a text stands for whatever follows. `priority`, `key` and `content-type`
stand there at most once, and a range has a digit. A content type is compared without its
parameters and in lower case; a header is one that messages keep, and one value of that name is
enough. Nothing of this ever changes of a message: once it is of a selection it always is.

A message's name tells its priority and its key, and mostly its content type; for the rest its
header block has to be read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from mq.model.errors import BadName, BadParameter
from mq.model.headers import Headers, is_kept_name
from mq.model.limits import (
    KEY_WRITTEN_BYTES_MAX,
    PRIORITY_MAX,
    SELECT_CHARS_MAX,
    SELECT_TERMS_MAX,
    UUID_CHARS,
)
from mq.model.names import (
    ATTRIBUTES_PATTERN,
    CONTENT_TYPE_DEFAULT,
    EXTENSIONS,
    Key,
    MessageId,
    content_type_of,
)

PARAMETER: Final = "select"
KINDS: Final = ("priority", "key", "content-type", "header")
"""Those of terms."""

_ATTRIBUTES: Final = re.compile(ATTRIBUTES_PATTERN)
_TERM: Final = re.compile(r"(?:[^\\,]|\\.)*", re.DOTALL)
_KIND: Final = re.compile(r"([^:]*):(.*)", re.DOTALL)
_TEXT: Final = re.compile(r"((?:[^\\*,]|\\[\\*,])*)(\*?)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\([\\*,])")
_SPECIAL: Final = re.compile(r"([\\*,])")
_RANGE: Final = re.compile(r"(?=.*[0-9])([0-9]?)(\.\.)?([0-9]?)")
_TCHAR: Final = r"[!#$%&'*+.^_`|~0-9a-z-]"
_CONTENT_TYPE: Final = re.compile(rf"{_TCHAR}+/{_TCHAR}+")
_CONTENT_TYPE_BEGINNING: Final = re.compile(rf"{_TCHAR}+/{_TCHAR}*")
_HEADER_NAME: Final = re.compile(rf"{_TCHAR}+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A text, or how one begins."""

    text: str
    is_beginning: bool

    def holds(self, found: str) -> bool:
        return found.startswith(self.text) if self.is_beginning else found == self.text

    def __str__(self) -> str:
        return _SPECIAL.sub(r"\\\1", self.text) + ("*" if self.is_beginning else "")


@dataclass(frozen=True, slots=True)
class _WantedHeader:
    """A header, by its name in lower case, and its value, whatever it is where that begins with
    nothing.
    """

    name: str
    value: _Wanted

    def holds(self, headers: Headers) -> bool:
        return any(self.value.holds(value) for name, value in headers if name.lower() == self.name)

    def __str__(self) -> str:
        value = "" if self.value == _WHATEVER else f"={self.value}"
        return _SPECIAL.sub(r"\\\1", self.name) + value


_WHATEVER: Final = _Wanted("", is_beginning=True)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a consumer takes. Made by `parse`; those that say the same are equal, and have the same
    `text`, which `parse` takes too.
    """

    text: str
    priorities: tuple[int, int] = field(compare=False, repr=False)
    """The lowest and the highest."""
    _key: _Wanted | None = field(compare=False, repr=False)
    _content_type: _Wanted | None = field(compare=False, repr=False)
    _headers: tuple[_WantedHeader, ...] = field(compare=False, repr=False)
    _written_key: str = field(compare=False, repr=False)
    """The key as names have it."""
    _extensions: frozenset[str] = field(compare=False, repr=False)
    """Those that stand for a content type that is wanted; "": the default is."""
    _bare: bool = field(compare=False, repr=False)
    """Whether a message of which nothing is said is of the selection."""

    @classmethod
    def parse(cls, *texts: str) -> Self:
        """The selection of the terms of all of these. Raises BadParameter."""
        if sum(map(len, texts)) > SELECT_CHARS_MAX:
            raise _bad(f"at most {SELECT_CHARS_MAX} characters")
        terms = [term for text in texts for term in _terms(text)]
        if not 1 <= len(terms) <= SELECT_TERMS_MAX:
            raise _bad(f"1 to {SELECT_TERMS_MAX} terms")
        priorities, key, content_type = None, None, None
        headers: set[_WantedHeader] = set()
        for kind, value in terms:
            if kind == "priority" and priorities is None:
                priorities = _priorities(value)
            elif kind == "key" and key is None:
                key = _wanted_key(value)
            elif kind == "content-type" and content_type is None:
                content_type = _wanted_content_type(value)
            elif kind == "header":
                headers.add(_wanted_header(value))
            elif kind in KINDS:
                raise _bad(f"one term of {kind}")
            else:
                raise _bad("terms of priority:, key:, content-type: or header:")
        return cls._of(priorities, key, content_type, tuple(sorted(headers, key=str)))

    @classmethod
    def of(cls, *, priority: str | None, key: str | None) -> Self:
        """The selection of terms of priority and key that say this, where it is said. Raises
        BadParameter, of the parameter of that name.
        """
        said = "priority"
        try:
            priorities = None if priority is None else _priorities(priority)
            said = "key"
            wanted = None if key is None else _wanted_key(key)
        except BadParameter as error:
            raise BadParameter(said, error.expected) from None
        return cls._of(priorities, wanted, None, ())

    @classmethod
    def _of(
        cls,
        priorities: tuple[int, int] | None,
        key: _Wanted | None,
        content_type: _Wanted | None,
        headers: tuple[_WantedHeader, ...],
    ) -> Self:
        said = [] if priorities is None else [f"priority:{_print_range(*priorities)}"]
        said += [] if key is None else [f"key:{key}"]
        said += [] if content_type is None else [f"content-type:{content_type}"]
        said += [f"header:{header}" for header in headers]
        lowest, highest = priorities or (0, PRIORITY_MAX)
        extensions = frozenset(
            extension
            for extension in ("", *EXTENSIONS)
            if content_type is None or content_type.holds(content_type_of(extension))
        )
        return cls(
            ",".join(said),
            (lowest, highest),
            key,
            content_type,
            headers,
            "" if key is None else _written(key.text),
            extensions,
            lowest == 0 and key is None and "" in extensions and not headers,
        )

    def matches_name(self, name: str) -> bool | None:
        """Whether the message of this name, an id as text, is of the selection; None: its header
        block decides. False where other things than an id's stand behind the uuid.
        """
        if len(name) == UUID_CHARS:
            return self._bare
        match = _ATTRIBUTES.fullmatch(name, UUID_CHARS)
        if match is None:
            return False
        priority, key, _, block, extension = match.groups()
        lowest, highest = self.priorities
        if not lowest <= int(priority or 0) <= highest or not self._takes_key(key):
            return False
        if block is None:
            return not self._headers and (extension or "") in self._extensions
        if extension is not None and extension not in self._extensions:
            return False
        is_told = self._content_type is None or extension is not None
        return True if is_told and not self._headers else None

    def matches(self, message_id: MessageId, headers: Headers) -> bool:
        """Whether the message that keeps these headers is of the selection."""
        by_name = self.matches_name(message_id.text)
        return self.matches_headers(message_id.text, headers) if by_name is None else by_name

    def matches_headers(self, name: str, headers: Headers) -> bool:
        """Whether a message whose name leaves it open, and that keeps these headers, is of the
        selection.
        """
        # Of a message with an extension, that is its content type.
        if self._content_type is not None and "." not in name:
            kept = [value for header, value in headers if header.lower() == "content-type"]
            said = kept[-1] if kept else CONTENT_TYPE_DEFAULT
            if not self._content_type.holds(said.partition(";")[0].strip().lower()):
                return False
        return all(wanted.holds(headers) for wanted in self._headers)

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


def _bad(expected: str) -> BadParameter:
    return BadParameter(PARAMETER, expected)


def _terms(text: str) -> Iterator[tuple[str, str]]:
    """The kinds of a text's terms, and what each says."""
    place = 0
    while (match := _TERM.match(text, place)) is not None:
        term = _KIND.fullmatch(match[0])
        if term is None:
            raise _bad("terms such as priority:5.. or key:PREFIX*, with commas between")
        yield term[1], term[2]
        place = match.end() + 1
        if match.end() == len(text):
            return
        if text[match.end()] != ",":
            raise _bad("a backslash before a comma, an asterisk or a backslash alone")


def _wanted(value: str) -> _Wanted:
    match = _TEXT.fullmatch(value)
    if match is None:
        raise _bad(
            "an asterisk at the end alone; before any other, a comma and a backslash, a backslash"
        )
    return _Wanted(_ESCAPED.sub(r"\1", match[1]), bool(match[2]))


def _priorities(value: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(value)
    if match is not None and (match[2] or not match[3]):
        lowest = int(match[1] or 0)
        highest = int(match[3] or PRIORITY_MAX) if match[2] else lowest
        if lowest <= highest:
            return lowest, highest
    raise _bad("priority: with a digit, or a range such as 3..7, 5.. or ..3")


def _print_range(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest}..{highest}"


def _wanted_key(value: str) -> _Wanted:
    wanted = _wanted(value)
    if not (wanted.is_beginning and not wanted.text):
        try:
            Key.parse(wanted.text)
        except BadName:
            raise _bad(
                f"key: with a key, or how one begins and *, of 1 to {KEY_WRITTEN_BYTES_MAX} bytes "
                "as written in a name"
            ) from None
    return wanted


def _written(beginning: str) -> str:
    """A key, or its beginning, as names have it: byte by byte, so that what one begins with stands
    in front there too.
    """
    return Key(beginning).written()


def _wanted_content_type(value: str) -> _Wanted:
    # A plus in a query is a space, and in a media type nobody means one.
    wanted = _wanted(value.replace(" ", "+").lower())
    form = _CONTENT_TYPE_BEGINNING if wanted.is_beginning else _CONTENT_TYPE
    if form.fullmatch(wanted.text) is None:
        raise _bad("content-type: with a type without parameters, or how one begins and *: text/*")
    return wanted


def _wanted_header(value: str) -> _WantedHeader:
    name_text, equals, value_text = value.partition("=")
    name = _wanted(name_text.lower())
    is_name = not name.is_beginning and _HEADER_NAME.fullmatch(name.text) is not None
    if not is_name or not is_kept_name(name.text):
        raise _bad(
            "header: with the name of one that messages keep: ce-..., x-attribute-..., "
            "traceparent, tracestate or content-encoding"
        )
    wanted = _wanted(value_text) if equals else _WHATEVER
    try:
        wanted.text.encode()
    except UnicodeEncodeError:
        raise _bad("values in UTF-8") from None
    if _CONTROL.search(wanted.text):
        raise _bad("values without control characters")
    return _WantedHeader(name.text, wanted)
