"""Roots that a daemon does not start on."""

from pathlib import Path

import pytest
from harness.mounts import tmpfs
from harness.server import Serve, Server

from mq.model.errors import AcrossFileSystems, StartupError


@pytest.mark.parametrize("line", ["mq 4\n", "mq 3 ", "mq 30\n", "something else\n", "mq 3\nmore\n"])
async def test_a_root_of_another_format_is_refused(serve: Serve, root: Path, line: str) -> None:
    await serve()
    (root / "format").write_text(line)
    with pytest.raises(StartupError, match="format"):
        await serve()
    assert (root / "format").read_text() == line


async def test_the_format_is_one_line(server: Server, root: Path) -> None:
    assert (root / "format").read_text() == "mq 3\n"


@pytest.mark.parametrize("folder", ["new", "queues", "delay", "remove"])
async def test_a_folder_that_is_a_symbolic_link_is_refused(
    serve: Serve, root: Path, tmp_path: Path, folder: str
) -> None:
    root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (root / folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match=folder):
        await serve()


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("mounted", "named"),
    [
        ("new", ("new", "queues")),
        ("queues", ("new", "queues")),
        ("delay", ("queues", "delay")),
        ("remove", ("delay", "remove")),
    ],
)
async def test_a_folder_on_another_file_system_is_refused_by_name(
    needs_root: None, serve: Serve, root: Path, mounted: str, named: tuple[str, str]
) -> None:
    with tmpfs(root / mounted, "size=1m"):
        with pytest.raises(AcrossFileSystems) as refused:
            await serve()
        for folder in named:
            assert str(root / folder) in str(refused.value)
        assert list(root.rglob(".probe")) == []
