"""The image: built by its Dockerfile, and run as a container runs it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.container import Container, container
from harness.image import Image, image
from harness.pages import section
from harness.processes import eventually

from mq import __version__

# Building takes a minute, most of it waiting for packages.
pytestmark = [pytest.mark.certificate, pytest.mark.needs_root, pytest.mark.timeout(900)]
PAGE = section("deploy/OPERATE.md", "Containers")
ANONYMOUS = {"MQ_ALLOW_ANONYMOUS": "1"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    with image(tmp_path_factory.mktemp("image")) as made:
        yield made


@pytest.fixture
def volume(built: Image, tmp_path: Path) -> Path:
    """A named volume that is used for the first time: as the image's folder is."""
    where = tmp_path / "volume"
    of_image = built.rootfs / "var/lib/mq"
    where.mkdir(mode=of_image.stat().st_mode & 0o777)
    shutil.chown(where, of_image.stat().st_uid, of_image.stat().st_gid)
    return where


@pytest.fixture
def root(built: Image, volume: Path, tmp_path: Path) -> Path:
    """A volume that mq has made its root of: mq-mover and mq-reaper make none."""
    with container(built, volume, tmp_path / "first", env=ANONYMOUS) as mq:
        until_healthy(mq)
        assert mq.stop() == 0, mq.log
    return volume


def health(mq: Container) -> list[str]:
    kind, *command = mq.image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    return command


def until_logged(each: Container, says: str) -> None:
    eventually(lambda: says in each.log or each.popen.poll() is not None, says, 120)
    assert says in each.log, each.log


def until_healthy(mq: Container) -> None:
    until_logged(mq, "listening")
    mq.execute(*health(mq))


def test_mq_serves_drains_and_writes_in_its_volume_alone(
    built: Image, volume: Path, tmp_path: Path
) -> None:
    before = files(built.rootfs)
    with container(built, volume, tmp_path / "log", env=ANONYMOUS) as mq:
        until_healthy(mq)
        url = "http://127.0.0.1:8080"
        mq.curl("-X", "PUT", f"{url}/orders")
        mq.curl("-d", "two pizzas", f"{url}/orders/messages")
        assert mq.curl(f"{url}/orders/messages") == "two pizzas"
        assert mq.execute("id", "-u").strip() == "10001"
        assert re.search(r"CapBnd:\s+0+\n", mq.execute("cat", "/proc/self/status"))
        assert mq.execute("sh", "-c", "touch /tmp/x 2>&1 || echo no").strip().endswith("no")
        assert mq.stop() == 0, mq.log
    assert files(built.rootfs) == before
    owners = {path.lstat().st_uid for path in volume.rglob("*")}
    assert owners == {10001}
    assert len(list((volume / "delay").iterdir())) == 1
    saved = kept(volume, tmp_path)
    assert saved == {path.name: path.lstat().st_mtime_ns for path in (volume / "delay").iterdir()}
    # And another one goes on where it was.
    with container(built, volume, tmp_path / "again", env=ANONYMOUS) as mq:
        until_healthy(mq)
        assert '"in_flight": 1' in mq.execute("mqctl", "describe", "orders", "--json")
        assert mq.stop() == 0, mq.log


def test_without_a_word_on_access_it_does_not_start(
    built: Image, volume: Path, tmp_path: Path
) -> None:
    with container(built, volume, tmp_path / "log") as mq:
        assert mq.popen.wait(120) != 0
        assert "--allow-anonymous" in mq.log


def test_it_is_unhealthy_when_nobody_answers(built: Image, root: Path, tmp_path: Path) -> None:
    with container(built, root, tmp_path / "log", "mq-reaper") as other:
        until_logged(other, "reaping")
        with pytest.raises(AssertionError, match="cannot be reached"):
            other.execute(*health(other))


@pytest.mark.parametrize(("daemon", "says"), [("mq-mover", "moving"), ("mq-reaper", "reaping")])
def test_the_others_run_by_it_too(
    built: Image, root: Path, tmp_path: Path, daemon: str, says: str
) -> None:
    with container(built, root, tmp_path / "log", daemon) as other:
        until_logged(other, says)
        assert other.stop() == 0, other.log


def test_several_processes_and_the_rest_beside_them_need_no_other_folder_either(
    built: Image, volume: Path, tmp_path: Path
) -> None:
    command = ("mq", "--standalone", "--processes", "2")
    with container(built, volume, tmp_path / "log", *command, env=ANONYMOUS) as mq:
        until_logged(mq, "moving")
        until_healthy(mq)
        mq.execute("mqctl", "create", "orders")
        mq.execute("mqctl", "send", "orders", "later", "--delay", "1")
        got = mq.execute("mqctl", "receive", "orders", "--ack", "--wait", "60", "--count", "1")
        assert "later" in got
        assert mq.stop() == 0, mq.log


def test_it_has_what_it_needs_and_no_more(built: Image) -> None:
    installed = (built.rootfs / "opt/mq/lib").glob("python3.*/site-packages/*")
    packages = {path.name for path in installed}
    assert {"mq", "mq_mover", "mq_reaper", "kazoo", "jwt", "opentelemetry"} <= packages
    assert f"mq-{__version__}.dist-info" in packages
    assert not {"pip", "pytest", "hatchling", "pyspark"} & packages
    assert not (built.rootfs / "src").exists()
    # Where this machine's was while it was built.
    assert not (built.rootfs / "etc/pip.conf").stat().st_size
    assert built.config["StopSignal"] == "SIGTERM"
    assert list(built.config["Volumes"]) == [built.environment["MQ_ROOT"]]


def kept(volume: Path, work: Path) -> dict[str, int]:
    """The times of what waits, out of an archive that was made as the page says."""
    copy = work / "copy"
    copy.mkdir()
    archive = str(work / "root.tar")
    making = re.search(r" (tar --format=posix .*)", PAGE)
    assert making is not None
    command = making.group(1).replace("/backup/root.tar", archive)
    subprocess.run(command.replace("/var/lib/mq", str(volume)).split(), check=True)
    subprocess.run(["tar", "-xf", archive, "-C", str(copy)], check=True)
    return {path.name: path.lstat().st_mtime_ns for path in (copy / "delay").iterdir()}


def files(top: Path) -> set[tuple[str, int]]:
    """What lies there, with its times."""
    found = (path for path in top.rglob("*") if not path.is_symlink())
    return {(str(path), path.stat().st_mtime_ns) for path in found}
