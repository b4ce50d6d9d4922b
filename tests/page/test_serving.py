"""The page's files: their headers, what they name, and that they are packed."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from harness.access import Tokens
from harness.api import assert_problem, call
from harness.pages import section
from harness.processes import Processes
from harness.server import Serve, Server

from mq.http.page.serving import assets, page

TOP = Path(__file__).parent.parent.parent
FILES = TOP / "mq" / "http" / "page" / "files"
# A name space, which nobody is asked for.
SVG = "http://www.w3.org/2000/svg"


async def test_the_page_and_all_that_it_is_made_of_are_served(server: Server) -> None:
    paths = {"/-/": page(), **{f"/-/page/{name}": asset for name, asset in assets().items()}}
    assert len(paths) == len(list(FILES.iterdir()))
    for path, asset in paths.items():
        reply = await call(server, "GET", path)
        assert (reply.status, reply.body) == (200, asset.body), path
        assert reply.headers["Content-Type"] == asset.media_type
        assert reply.headers["Cache-Control"] == "no-cache"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["X-Frame-Options"] == "DENY"
        policy = reply.headers["Content-Security-Policy"].split("; ")
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert not [each for each in policy if "unsafe" in each or "http" in each]
        head = await call(server, "HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["Content-Length"] == str(len(asset.body))


async def test_a_browser_at_the_root_goes_to_the_page(server: Server) -> None:
    for accept, status in (("text/html,*/*;q=0.8", 303), ("*/*", 200), ("application/json", 200)):
        headers = {"Accept": accept}
        reply = await call(server, "GET", "/", headers=headers, allow_redirects=False)
        assert (reply.status, reply.headers["Vary"]) == (status, "Accept")
        assert reply.headers.get("Location") == ("-/" if status == 303 else None)


@pytest.mark.parametrize("path", ["/-/", "/-/page/main.js"])
async def test_what_a_browser_has_is_not_sent_again(server: Server, path: str) -> None:
    tag = (await call(server, "GET", path)).headers["ETag"]
    for said in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        reply = await call(server, "GET", path, headers={"If-None-Match": said})
        assert (reply.status, reply.body, reply.headers["ETag"]) == (304, b"", tag), said
    for said in ('"x"', tag.strip('"'), "", '"', f"{tag} {tag}x"):
        assert (await call(server, "GET", path, headers={"If-None-Match": said})).status == 200


async def test_nothing_else_is_a_file_of_the_page(server: Server) -> None:
    for name in ("none.js", "index.html", "..%2Fserving.py", "main.js%00", "MAIN.JS"):
        reply = await call(server, "GET", f"/-/page/{name}")
        assert reply.status == 404, name
    assert_problem(await call(server, "GET", "/-/page/none.js"), 404, "path-unknown")
    assert_problem(await call(server, "POST", "/-/"), 405, "method-not-allowed")
    assert_problem(await call(server, "GET", "/-/?x=1"), 400, "unknown-parameter")
    assert (await call(server, "GET", "/-/page/")).status == 404
    assert (await call(server, "GET", "/-")).status == 404


async def test_it_is_there_for_those_who_have_yet_to_say_who_they_are(
    serve: Serve, tokens: Tokens
) -> None:
    server = await serve(tokens=tokens.path)
    assert (await call(server, "GET", "/-/")).status == 200
    assert (await call(server, "GET", "/-/page/main.js")).status == 200
    assert (await call(server, "GET", "/-/queues")).status == 401


def test_it_names_no_host_and_makes_no_markup_of_text() -> None:
    for path in sorted(FILES.iterdir()):
        text = path.read_text(encoding="utf-8").replace(SVG, "")
        assert not re.search(r"\w+://|[\"'(]//", text), path.name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|srcdoc", text
        ), path.name
        assert not re.search(r"\bstyle=|\bon\w+=\"", text), path.name
        assert len(text.splitlines()) <= 250, path.name


def test_what_it_imports_is_there() -> None:
    for path in sorted(FILES.glob("*.js")):
        for named in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")):
            assert named in assets(), (path.name, named)


def test_its_page_s_command_says_what_it_shows(daemons: Processes, root: Path) -> None:
    shown = section("deploy/OBSERVE.md", "Web page")
    blocks = re.findall(r"```sh\n(.*?)```\n```\n(.*?)```\n", shown, re.DOTALL)
    assert len(blocks) == shown.count("```sh") == 1
    mq = daemons.mq(root)
    for command, answer in blocks:
        told = command.replace("localhost:8080", f"127.0.0.1:{mq.port}")
        done = subprocess.run(["bash", "-c", told], capture_output=True, text=True, timeout=60)
        assert done.stdout == answer


def test_the_wheel_has_it(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=TOP,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"mq/http/page/files/{path.name}" for path in FILES.iterdir()} <= names
