"""The pages' commands as somebody new gives them: on a new Debian, as a new user, in order.

The Spark drain of the README's pages is walked in `tests/spark/test_pipeline_page.py`.
"""

import re
import shutil
from pathlib import Path

import pytest
from harness.debian import Machine
from harness.distributions import TOP, checkout
from harness.pages import section

pytestmark = [pytest.mark.certificate, pytest.mark.needs_root, pytest.mark.timeout(900)]

README = (TOP / "README.md").read_text(encoding="utf-8")
SYSTEMD = section("deploy/OPERATE.md", "systemd")
RELEASING = section("deploy/CONTRIBUTING.md", "Make a release")
PINS = TOP / "deploy" / "requirements.txt"
HOME = "/home/ada"
# A function that waits for what a command says, and what is put before each walk.
WAIT = """
comes() {
    for _ in $(seq 600); do
        if "${@:2}" 2>/dev/null | grep -q -- "$1"; then return; fi
        sleep 0.1
    done
    echo "never said $1: ${*:2}" >&2; cat "$HOME"/*.log >&2; exit 1
}
"""


def blocks(page: str, language: str = "sh") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [text for each, text in found if each == language]


def one(page: str, words: str, language: str = "sh") -> str:
    """The one block of a page with these words."""
    (found,) = (each for each in blocks(page, language) if words in each)
    return found


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("machine", numbered=True) / "debian"
    made = Machine(folder)
    # What mq and its building need; what the pages have pip install is built there, from there.
    made.provide("-r", str(PINS), "--require-hashes")
    made.provide("hatchling>=1.26,<2")
    made.says("useradd", "--create-home", "ada")
    source = checkout(folder / HOME[1:] / "mq")
    shutil.copytree(source, folder / "root" / "mq")
    made.says("chown", "-R", "ada:ada", f"{HOME}/mq")
    return made


def walk(machine: Machine, script: str) -> str:
    """What it says to a new user, in a checkout."""
    place = machine.folder / HOME[1:] / "walk.sh"
    place.write_text(f"cd mq\n{WAIT}{script}")
    return machine.says("bash", "-euo", "pipefail", "walk.sh", user="ada", home=HOME)


def test_a_new_user_comes_to_a_queue_a_worker_a_schedule_and_a_shovel(machine: Machine) -> None:
    set_up = one(README, "mq --standalone\n").strip()
    tour = one(README, "two pizzas")
    program = one(README, "Worker(", "python")
    said = walk(
        machine,
        f"""
({set_up} >$HOME/mq.log 2>&1) &
comes alive curl -sS localhost:8080/-/livez
curl() {{ command curl -sSf "$@"; }}
{tour}
unset -f curl
PATH=$PWD/.venv/bin:$PATH
cat >$HOME/app.py <<'END'
{program}END
python -u $HOME/app.py >$HOME/worker.log 2>&1 &
working=$!
comes table cat $HOME/worker.log
mqctl schedules add orders stock '{{"take": "stock"}}' --every 1h --delay 0
comes take cat $HOME/worker.log
kill -TERM $working
wait $working
cat $HOME/worker.log
mqctl schedules remove orders stock
id=$(mqctl send orders 'burnt pizza')
mqctl sideline orders "$id" --reason exception
mqctl shovel start orders --wait
mqctl receive orders --ack
mqctl send orders 'two pizzas'
mqctl peek orders
mqctl doctor /tmp/mq || echo "the doctor ends with $?"
mqctl fsck /tmp/mq
echo walked to the end
""",
    )
    for shown in ("two pizzas", "in flight", "{'table': 7}", "burnt pizza", "moved"):
        assert shown in said, said
    assert said.endswith("walked to the end\n")
    assert "Traceback" not in said + (machine.folder / HOME[1:] / "worker.log").read_text()
    # Nothing of it went anywhere but to the checkout, /tmp and what the walk itself wrote.
    assert {each.name for each in (machine.folder / HOME[1:]).iterdir() if each.is_dir()} <= {
        "mq", ".cache",
    }  # fmt: skip


def test_a_release_is_built_and_tried_as_its_page_says(machine: Machine) -> None:
    trying = one(RELEASING, "--require-hashes")
    said = walk(
        machine,
        f"""
python3 -m venv $HOME/build
$HOME/build/bin/pip install -q hatchling
$HOME/build/bin/python -m hatchling build
{trying}
""",
    )
    assert "No broken requirements" in said, said


def test_a_systemd_is_given_its_units_and_they_their_programs(machine: Machine) -> None:
    install = next(each for each in blocks(SYSTEMD, "") if "/opt/mq/bin/pip install ." in each)
    enable = next(each for each in blocks(SYSTEMD, "") if "systemctl enable" in each)
    # No systemd runs there that could start them now; they are started by hand, as their user.
    enable = "".join(line for line in enable.splitlines() if " enable " in line).replace(
        "--now ", ""
    )
    files = one(SYSTEMD, "root=\n")
    (place,) = ((machine.folder / "root") / "walk.sh",)
    place.write_text(
        f"""cd mq
{WAIT}
# The one way or the other: no pipx here.
{install.splitlines()[0]}
{files}
{enable}
install -d -o mq -g mq -m 700 /var/lib/mq
cd /
as_mq="setpriv --reuid=mq --regid=mq --init-groups"
for daemon in mq mq-mover mq-reaper; do
    $as_mq /opt/mq/bin/$daemon --root /var/lib/mq >$HOME/$daemon.log 2>&1 &
done
comes alive curl -sS localhost:8080/-/livez
curl -sSf -X PUT localhost:8080/orders
curl -sSf -d 'two pizzas' localhost:8080/orders/messages
/opt/mq/bin/mqctl receive orders --ack
$as_mq /opt/mq/bin/mqctl doctor /var/lib/mq || echo "the doctor ends with $?"
kill -TERM $(jobs -p)
wait
echo walked to the end
"""
    )
    said = machine.says("bash", "-euo", "pipefail", "walk.sh")
    assert said.endswith("walked to the end\n"), said
    assert "two pizzas" in said
    wants = Path("etc/systemd/system")
    for link in (
        "multi-user.target.wants/mq.target", "mq.target.wants/mq.service",
        "mq.target.wants/mq-mover.service", "mq.target.wants/mq-reaper.service",
        "sockets.target.wants/mq.socket",
    ):  # fmt: skip
        assert (machine.folder / wants / link).is_symlink(), said
    assert re.search("^mq:", (machine.folder / "etc/passwd").read_text(), re.MULTILINE)
