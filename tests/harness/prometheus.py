"""A real Prometheus, with short intervals and alerts that do not wait."""

import contextlib
import json
import re
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.needs import program
from harness.processes import PATIENCE_S, eventually

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "mq.rules.yml"
EVERY = "1s"
_OFFSETS = re.compile(r"\[\d+[smh]\]")


def hurried(rules: str, window: str = "15s") -> str:
    """The rules without waits, and over a window of a few scrapes."""
    found = yaml.safe_load(rules)
    for group in found["groups"]:
        group["interval"] = EVERY
        for rule in group["rules"]:
            rule["for"] = "0s"
            rule["expr"] = _OFFSETS.sub(f"[{window}]", rule["expr"])
    return yaml.safe_dump(found)


@dataclass
class Prometheus:
    """One that runs."""

    popen: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    url: str = ""

    def ask(self, path: str, **query: str) -> Any:
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as response:
            return json.load(response)["data"]

    def firing(self) -> set[tuple[str, str]]:
        """The alerts that fire, and of which queue, or job, each is."""
        labels = [
            each["labels"] for each in self.ask("alerts")["alerts"] if each["state"] == "firing"
        ]
        return {(each["alertname"], each.get("queue", each.get("job", ""))) for each in labels}

    def fires(self, alert: str, of: str) -> None:
        """Waits until it does."""
        eventually(lambda: (alert, of) in self.firing(), f"{alert} of {of}")

    def health(self) -> dict[str, tuple[str, str]]:
        """By job, how its last scrape ended."""
        targets = self.ask("targets")["activeTargets"]
        return {each["labels"]["job"]: (each["health"], each["lastError"]) for each in targets}

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=PATIENCE_S) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError:
            return False

    def read_log(self) -> None:
        assert self.popen.stderr is not None
        with contextlib.suppress(ValueError):
            for line in self.popen.stderr:
                self.lines.append(line)

    def find_url(self) -> str:
        assert self.popen.poll() is None, self.lines
        for line in list(self.lines):
            if match := re.search(r'Listening on"? address=(127\.0\.0\.1:\d+)', line):
                return f"http://{match.group(1)}"
        return ""


@contextlib.contextmanager
def prometheus(folder: Path, targets: Mapping[str, tuple[str, int]]) -> Iterator[Prometheus]:
    """Scrapes the targets, each a path and a port by its job, and looks at the rules."""
    folder.mkdir()
    (folder / "rules.yml").write_text(hurried(RULES.read_text()))
    jobs = [
        {
            "job_name": job,
            "metrics_path": path,
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
        }
        for job, (path, port) in targets.items()
    ]
    config = {
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "scrape_configs": jobs,
        "rule_files": ["rules.yml"],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    popen = subprocess.Popen(
        [
            program("prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            "--web.listen-address=127.0.0.1:0",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    made = Prometheus(popen)
    reading = threading.Thread(target=made.read_log, daemon=True)
    reading.start()
    try:
        made.url = eventually(made.find_url, "a Prometheus that listens")
        eventually(made.is_ready, "a Prometheus that has begun")
        yield made
    finally:
        popen.terminate()
        try:
            popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
        reading.join(PATIENCE_S)
        assert popen.stderr is not None
        popen.stderr.close()
