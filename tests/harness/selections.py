"""Messages and selections that a test makes, and what a selection takes, said plainly."""

import operator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol

from hypothesis import strategies as st

from mq.model.headers import Headers, kept, print_block
from mq.model.limits import KEY_WRITTEN_BYTES_MAX
from mq.model.names import CONTENT_TYPE_DEFAULT, Key, MessageId, extension_for

UUID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"

# Few of each, so that they meet.
KEYS = ("a", "ab", "abc", "a,b", "a*", "a\\", "é", "éa", "=41", "x" * KEY_WRITTEN_BYTES_MAX)
TYPES = (
    "", "text/plain", "text/plain; charset=utf-8", "Text/HTML", "application/json", "text/x-odd",
    "application/vnd.acme+json", "image/svg+xml", "application/json;v=1", "odd",
)  # fmt: skip
NAMES = ("ce-type", "CE-Type", "x-attribute-a", "traceparent", "Content-Encoding")
VALUES = (
    "", "order.created", "order.paid", "order", "a,b", "a*", "a=b", "\\", "é", "a(b)", "7", "-7.50",
    "10", "1e1", "9" * 70,
)  # fmt: skip
BOUNDS = ("7", "-7.5", "10.0", "1e-2", "order", "a,b", "(", "9" * 70)


@dataclass(frozen=True)
class Message:
    """What its publisher says of a message; `content_type` "" is none."""

    priority: int
    key: str | None
    content_type: str
    headers: Headers

    def stored(self, uuid: str = UUID) -> tuple[MessageId, Headers]:
        """How it is stored: its id, and what its header block says."""
        said = (("Content-Type", self.content_type),) if self.content_type else ()
        block = kept((*said, *self.headers))
        made = MessageId(
            uuid,
            self.priority,
            None if self.key is None else Key.parse(self.key),
            header_bytes=len(print_block(block)),
            extension=extension_for(self.content_type),
        )
        return made, block


messages = st.builds(
    Message,
    st.integers(0, 9),
    st.none() | st.sampled_from(KEYS),
    st.sampled_from(TYPES),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=3).map(tuple),
)


def escaped(text: str) -> str:
    """A text as a term has it."""
    return "".join(f"\\{char}" if char in ",*\\()" else char for char in text)


@dataclass(frozen=True)
class Wanted:
    """A term, as its parts; `priorities` are for that kind alone."""

    kind: str
    text: str = ""
    is_beginning: bool = False
    name: str = ""
    priorities: tuple[int, int] = (0, 9)

    def __str__(self) -> str:
        lowest, highest = self.priorities
        text = escaped(self.text) + "*" * self.is_beginning
        if self.kind == "priority":
            text = str(lowest) if lowest == highest else f"{lowest}..{highest}"
        return f"{self.kind}:{self.name}{'=' if self.name else ''}{text}"

    def holds(self, message: Message) -> bool:
        """The same said plainly."""

        def fits(found: str) -> bool:
            return found[: len(self.text)] == self.text if self.is_beginning else found == self.text

        if self.kind == "priority":
            return self.priorities[0] <= message.priority <= self.priorities[1]
        if self.kind == "key":
            return message.key is not None and fits(message.key)
        if self.kind == "content-type":
            return fits((message.content_type or CONTENT_TYPE_DEFAULT).split(";")[0].lower())
        return any(
            fits(value) for name, value in message.headers if name.lower() == self.name.lower()
        )


@dataclass(frozen=True)
class Within:
    """A term about the range of a header: `sign` and one bound, or ":" and two, "" being none."""

    name: str
    sign: str
    bounds: tuple[str, ...]

    def __str__(self) -> str:
        return f"header:{self.name}{self.sign}{'..'.join(map(escaped, self.bounds))}"

    def holds(self, message: Message) -> bool:
        """The same said plainly."""
        signs = (">=", "<=") if self.sign == ":" else (self.sign,)
        ends = [(sign, each) for sign, each in zip(signs, self.bounds, strict=True) if each]
        values = [value for name, value in message.headers if name.lower() == self.name.lower()]
        return any(all(compares(value, ends, each) for each in ends) for value in values)


def compares(value: str, ends: list[tuple[str, str]], end: tuple[str, str]) -> bool:
    """Whether a value stands to one end as it says; as numbers where all the ends are such."""
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[end[0]]
    if any(number(each) is None for _, each in ends):
        return bool(compare(value, end[1]))
    return number(value) is not None and bool(compare(number(value), number(end[1])))


def number(text: str) -> Decimal | None:
    """The number that a short text is."""
    try:
        return Decimal(text) if len(text) <= 64 else None
    except InvalidOperation:
        return None


class Term(Protocol):
    """What a message may be."""

    def holds(self, message: Message) -> bool: ...


@dataclass(frozen=True)
class Grouped:
    """Terms between parentheses."""

    kind: str
    of: tuple[Term, ...]

    def __str__(self) -> str:
        return f"{self.kind}({','.join(map(str, self.of))})"

    def holds(self, message: Message) -> bool:
        """The same said plainly."""
        found = [each.holds(message) for each in self.of]
        return {"any": any(found), "all": all(found), "not": not found[0]}[self.kind]


def beginnings(texts: tuple[str, ...], least: int = 0) -> st.SearchStrategy[tuple[str, bool]]:
    """A text, or how one begins."""
    exact = st.sampled_from(texts).filter(lambda text: len(text) >= least)
    return st.one_of(
        exact.map(lambda text: (text, False)),
        st.tuples(exact, st.integers(least, 12)).map(lambda each: (each[0][: each[1]], True)),
    )


media_types = tuple(
    each.split(";")[0].lower() for each in (*TYPES, CONTENT_TYPE_DEFAULT) if "/" in each
)
term_kinds = (
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(
        lambda each: Wanted("priority", priorities=(min(each), max(each)))
    ),
    beginnings(KEYS).map(lambda each: Wanted("key", *each)),
    beginnings(media_types)
    .filter(lambda each: "/" in each[0])
    .map(lambda each: Wanted("content-type", *each)),
    st.tuples(beginnings(VALUES), st.sampled_from(NAMES)).map(
        lambda each: Wanted("header", *each[0], name=each[1])
    ),
)
# Each kind at most once, but for headers.
terms = st.permutations([*term_kinds, term_kinds[-1]]).flatmap(
    lambda kinds: st.integers(1, 3).flatmap(lambda count: st.tuples(*kinds[:count]))
)

ranges = st.one_of(
    st.builds(
        Within,
        st.sampled_from(NAMES),
        st.sampled_from(("<", "<=", ">", ">=")),
        st.tuples(st.sampled_from(BOUNDS)),
    ),
    st.builds(
        Within,
        st.sampled_from(NAMES),
        st.just(":"),
        st.tuples(st.sampled_from((*BOUNDS, "")), st.sampled_from((*BOUNDS, ""))).filter(any),
    ),
)


def grouped(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    """Parentheses around terms; those in `all` differ in their kinds, or are groups."""
    return st.one_of(
        st.builds(Grouped, st.just("any"), st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Grouped, st.just("not"), st.tuples(inner)),
        st.builds(Grouped, st.just("all"), terms),
        st.builds(
            Grouped,
            st.just("all"),
            st.tuples(
                st.builds(Grouped, st.just("any"), st.tuples(inner)),
                st.builds(Grouped, st.just("not"), st.tuples(inner)),
            ),
        ),
    )


trees: st.SearchStrategy[Term] = grouped(st.one_of(*term_kinds, ranges)) | ranges
trees = grouped(trees) | trees
"""Terms with groups, no deeper than a selection may be."""


def said(wanted: tuple[Wanted, ...]) -> str:
    """The terms as one text."""
    return ",".join(map(str, wanted))
