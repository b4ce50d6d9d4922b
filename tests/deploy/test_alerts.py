"""Alerts: that they fire, in a real Prometheus over real daemons, or by its own tool for rules."""

import contextlib
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.messages import put_entry
from harness.mounts import tmpfs
from harness.needs import program
from harness.processes import PATIENCE_S, Process, Processes, eventually
from harness.prometheus import RULES, prometheus

from mq.model.clock import SystemClock

TESTS = Path(__file__).with_name("mq.rules.test.yml")
CONFIG = RULES.with_name("prometheus.yml")
HOUR_MS = 3_600_000


def alerts() -> dict[str, dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ask(mq: Process, method: str, path: str, body: bytes | None = None) -> str:
    request = urllib.request.Request(f"{mq.url}{path}", data=body, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return str(response.headers["X-Message-Id"])


def test_rules_and_the_configuration_are_what_prometheus_takes() -> None:
    promtool("check", "rules", str(RULES))
    promtool("check", "config", str(CONFIG))


def test_every_rule_fires_when_it_should_and_not_when_it_should_not() -> None:
    promtool("test", "rules", str(TESTS))
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    cases = [case for each in tests for case in each["alert_rule_test"]]
    firing = {case["alertname"] for case in cases if case["exp_alerts"]}
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert firing == quiet == set(alerts())


def test_every_job_of_the_rules_is_one_of_the_configuration() -> None:
    jobs = {each["job_name"] for each in yaml.safe_load(CONFIG.read_text())["scrape_configs"]}
    said = re.findall(r'job=~"([^"]+)"', RULES.read_text())
    assert {job for each in said for job in each.split("|")} == jobs


@pytest.mark.needs_root
def test_alerts_fire_over_real_daemons(
    needs_root: None, daemons: Processes, root: Path, tmp_path: Path
) -> None:
    with tmpfs(root, "size=16m"):
        mq = daemons.mq(root)
        mover = daemons.mover("--root", str(root), "--metrics", "0")
        reaper = daemons.reaper("--root", str(root), "--metrics", "127.0.0.1:0")
        ports = {
            job: int(daemon.wait_for_log(r"metrics port=(\d+)").group(1))
            for job, daemon in (("mq-mover", mover), ("mq-reaper", reaper))
        }
        targets = {job: ("/metrics", port) for job, port in ports.items()}
        ask(mq, "PUT", "/orders")
        # Its sideline is there, and empty, before anybody looks.
        _sideline_one(mq)
        ask(mq, "DELETE", "/orders_SIDELINE/messages/" + _fetch(mq, "orders_SIDELINE"))
        with prometheus(tmp_path / "prometheus", {"mq": ("/-/metrics", mq.port), **targets}) as at:
            well = dict.fromkeys(("mq", *targets), ("up", ""))
            eventually(lambda: at.health() == well, "answers of all daemons")
            known = {"query": 'count_over_time(mq_queue_sidelined{queue="orders"}[15s]) > 2'}
            eventually(lambda: at.ask("query", **known)["result"], "a few scrapes")
            eventually(lambda: at.firing() == set(), "a moment without alerts")

            _sideline_one(mq)
            at.fires("MqSidelineGrows", "orders")

            mover.kill()
            put_entry(root / "delay", due_ms=SystemClock().now_ms() - HOUR_MS, receives=1)
            at.fires("MqMoverStopped", "mq")
            at.fires("MqDown", "mq-mover")

            filling = root / "filling"
            _fill(filling)
            at.fires("MqBelowReserve", "mq")
            at.fires("MqDiskNearlyFull", "mq")

            filling.unlink()
            daemons.mover("--root", str(root))
            resolved = {("MqBelowReserve", "mq"), ("MqMoverStopped", "mq")}
            eventually(lambda: not at.firing() & resolved, "the end of what was wrong")
        mq.terminate()


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 65536):
            pass


def _fetch(mq: Process, queue: str = "orders") -> str:
    return ask(mq, "GET", f"/{queue}/messages")


def _sideline_one(mq: Process) -> None:
    ask(mq, "POST", "/orders/messages", b"a pizza")
    ask(mq, "POST", f"/orders/messages/{_fetch(mq)}/sideline")
