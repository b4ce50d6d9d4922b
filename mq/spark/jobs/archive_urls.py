"""Paths as Spark takes them."""

from dataclasses import dataclass
from typing import Final

from mq.model.errors import MqError

_PATTERN: Final = frozenset("{}[]*?\\")


@dataclass(eq=False)
class PathIsPattern(MqError):
    """A path that Spark would take for a pattern of paths."""

    path: str

    def __str__(self) -> str:
        return f"{self.path}: Spark takes paths with any of {{}}[]*?\\ for patterns; rename it"


def check_path(path: str) -> None:
    """Raises PathIsPattern."""
    if not _PATTERN.isdisjoint(path):
        raise PathIsPattern(path)


def url(path: str) -> str:
    """An absolute path of a file system that is mounted, whatever Spark's own default is. It is no
    escaped URL: Hadoop unescapes none.
    """
    return f"file://{path}"
