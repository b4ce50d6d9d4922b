"""What runs in a mount namespace of its own holds nothing of the tests beside it."""

import subprocess
from pathlib import Path

import pytest
from harness.apart import apart
from harness.mounts import tmpfs

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("needs_root")]


def test_another_test_s_mount_is_not_held(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "size=1m") as disk:
        (disk / "here").touch()
        seen = subprocess.run(
            [*apart("--pid", "--fork"), "cat", "/proc/self/mounts"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert str(disk) not in seen.stdout
        assert " / " in seen.stdout
        # Here it is as it was.
        assert (disk / "here").exists()
