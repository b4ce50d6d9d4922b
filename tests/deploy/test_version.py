"""The version stands in one place, and all that tells of it tells that one."""

import re
from pathlib import Path

import pytest

from mq import __version__

TOP = Path(__file__).parents[2]
PLACES = ("mq", "mq_mover", "mq_reaper", "deploy")
CHANGELOG = (TOP / "CHANGELOG.md").read_text(encoding="utf-8")
STATED = re.compile(rf"(?<![\w.]){re.escape(__version__)}(?![\w.]*\d)")
# An image is named with its version, which is this one; all other packages' versions are theirs.
IMAGE = re.compile(r"(?:\bmq:(?:\$\{\w+:-)?|newTag: \"?)(\d+\.\d+\.\d+\w*)")


def texts() -> dict[Path, str]:
    found = [TOP / "pyproject.toml", TOP / "README.md"]
    for place in PLACES:
        found += (path for path in (TOP / place).rglob("*") if path.is_file())
    return {
        path: path.read_text(encoding="utf-8")
        for path in found
        if path.suffix not in (".pyc", ".png", ".ico", ".woff2")
        and "__pycache__" not in path.parts
        and "requirements" not in path.name
    }


def test_no_other_file_states_the_version() -> None:
    stating = {path for path, text in texts().items() if STATED.search(IMAGE.sub("", text))}
    assert stating == {TOP / "mq" / "__init__.py"}


def test_an_image_is_of_this_version() -> None:
    for path, text in texts().items():
        assert set(IMAGE.findall(text)) <= {__version__}, path


def test_it_is_a_version_that_the_changelog_tells_of() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", __version__)
    newest = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)[0]
    assert re.fullmatch(rf"{re.escape(__version__)} - (unreleased|\d{{4}}-\d\d-\d\d)", newest), (
        newest
    )


@pytest.mark.parametrize("heading", ["Added", "Disk format"])
def test_what_a_release_says_is_in_it(heading: str) -> None:
    newest = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1]
    assert f"\n### {heading}\n" in newest
