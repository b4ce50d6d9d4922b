"""The view of the rows, and how keys change it. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mq.tools.mqctl.top import keys
from mq.tools.mqctl.top.rows import ORDERS

FILTER_CHARS_MAX: Final = 64
HELP: Final = "q quit  </> or s sort  r reverse  / filter  p pause  arrows, pages, Home, End move"


@dataclass(frozen=True, slots=True)
class View:
    """`selected`: the index of the marked row; `first`: of the first row on the screen. `typing`:
    the filter while it is typed, else None.
    """

    order: str = ORDERS[0]
    is_reversed: bool = False
    part: str = ""
    typing: str | None = None
    is_paused: bool = False
    selected: int = 0
    first: int = 0
    is_over: bool = False

    @property
    def wanted(self) -> str:
        """The filter in effect; it applies while it is typed."""
        return self.part if self.typing is None else self.typing


def press(view: View, key: str, count: int, page: int) -> View:
    """The view after a key. `count`: the number of rows; `page`: how many fit the screen."""
    if view.typing is not None:
        return _typed(view, view.typing, key)
    to = {
        keys.UP: view.selected - 1,
        "k": view.selected - 1,
        keys.DOWN: view.selected + 1,
        "j": view.selected + 1,
        keys.PAGE_UP: view.selected - page,
        keys.PAGE_DOWN: view.selected + page,
        keys.HOME: 0,
        keys.END: count - 1,
    }.get(key)
    if to is not None:
        return settled(replace(view, selected=to), count, page)
    change = _CHANGES.get(key)
    return view if change is None else change(view)


def _over(view: View) -> View:
    return replace(view, is_over=True)


def _later(view: View) -> View:
    return _sorted(view, 1)


def _earlier(view: View) -> View:
    return _sorted(view, -1)


def _sorted(view: View, step: int) -> View:
    order = ORDERS[(ORDERS.index(view.order) + step) % len(ORDERS)]
    return replace(view, order=order, is_reversed=False, selected=0, first=0)


def _turned(view: View) -> View:
    return replace(view, is_reversed=not view.is_reversed, selected=0, first=0)


def _typing(view: View) -> View:
    return replace(view, typing=view.part)


def _paused(view: View) -> View:
    return replace(view, is_paused=not view.is_paused)


def _unfiltered(view: View) -> View:
    return replace(view, part="", selected=0, first=0)


_CHANGES: Final[Mapping[str, Callable[[View], View]]] = {
    **dict.fromkeys(("q", "Q"), _over),
    **dict.fromkeys((">", "s", keys.RIGHT), _later),
    **dict.fromkeys(("<", "S", keys.LEFT), _earlier),
    "r": _turned,
    "/": _typing,
    **dict.fromkeys(("p", " "), _paused),
    keys.ESCAPE: _unfiltered,
}


def _typed(view: View, typing: str, key: str) -> View:
    if key == keys.ENTER:
        return replace(view, part=typing, typing=None)
    if key == keys.ESCAPE:
        return replace(view, typing=None, selected=0, first=0)
    if key == keys.BACKSPACE:
        return replace(view, typing=typing[:-1], selected=0, first=0)
    if len(key) == 1 and len(typing) < FILTER_CHARS_MAX:
        return replace(view, typing=typing + key, selected=0, first=0)
    return view


def settled(view: View, count: int, page: int) -> View:
    """The view with its mark on a row and on the screen."""
    selected = max(0, min(view.selected, count - 1))
    page = max(page, 1)
    first = max(0, min(view.first, count - page))
    if selected < first:
        first = selected
    elif selected >= first + page:
        first = selected - page + 1
    if (selected, first) == (view.selected, view.first):
        return view
    return replace(view, selected=selected, first=first)
