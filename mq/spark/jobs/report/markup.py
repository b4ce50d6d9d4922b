"""HTML and SVG as text: every value is escaped on its way in, and what comes out is XML too."""

import re
from typing import Final

_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EMPTY: Final = frozenset({"meta", "link", "br", "path", "rect", "line", "circle", "wbr"})
"""Elements without content, which alone may be written `<x/>`."""

Content = object
"""A Markup stands as it is; None is nothing; anything else is text."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(text: object) -> str:
    """Text as XML and HTML may hold it, in an element or an attribute; what neither may hold (a
    control character, half a surrogate pair) is U+FFFD.
    """
    legal = _ILLEGAL.sub("\ufffd", str(text))
    for character, entity in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#39")):
        legal = legal.replace(character, f"&{entity};")
    return legal


def joined(*contents: Content) -> Markup:
    """Contents one after the other."""
    return Markup(
        "".join(
            content if isinstance(content, Markup) else escaped(content)
            for content in contents
            if content is not None
        )
    )


def tag(name: str, *contents: Content, **attributes: object) -> Markup:
    """An element. `class_` is `class`, `aria_label` is `aria-label`; None leaves one out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(*contents)}</{name}>")
