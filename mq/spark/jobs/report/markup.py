"""HTML and SVG as text: every value is escaped, and the result is XML too."""

import re
from typing import Final
from xml.sax.saxutils import escape

_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EMPTY: Final = frozenset({"meta", "link", "br", "path", "rect", "line", "circle", "wbr"})
"""Elements without content, the only ones that may be written `<x/>`."""

Content = object
"""A Markup is inserted as it is; None is left out; anything else is text."""


class Markup(str):
    __slots__ = ()


def escaped(text: object) -> str:
    """Escapes text for XML and HTML, in an element or an attribute. A character that neither allows
    (a control character, half a surrogate pair) becomes U+FFFD.
    """
    return escape(_ILLEGAL.sub("\ufffd", str(text)), {'"': "&quot;", "'": "&#39;"})


def joined(*contents: Content) -> Markup:
    """Joins contents."""
    return Markup(
        "".join(
            content if isinstance(content, Markup) else escaped(content)
            for content in contents
            if content is not None
        )
    )


def tag(name: str, *contents: Content, **attributes: object) -> Markup:
    """An element. `class_` is `class`, `aria_label` is `aria-label`; None leaves an
    attribute out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(*contents)}</{name}>")
