"""Tasks of the Celery application of MIGRATE.md, whose settings CELERY_SETTINGS has. They, and what
acknowledges them, write into the file LOG; a gated task waits for the file GATE.
"""

import os
import threading
from pathlib import Path

from kombu.transport.SQS import Channel

settings: dict = {}
exec(Path(os.environ["CELERY_SETTINGS"]).read_text(encoding="utf-8"), settings)
app = settings["app"]
LOG = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
GATE = Path(os.environ["GATE"])


def note(event: str, task: str, retries: int) -> None:
    os.write(LOG, f"{event} {task}/{retries}\n".encode())


@app.task(bind=True)
def plain(self) -> None:
    note("began", self.request.id, self.request.retries)
    note("ended", self.request.id, self.request.retries)


@app.task(bind=True)
def gated(self) -> None:
    note("began", self.request.id, self.request.retries)
    pause = threading.Event()
    while not GATE.exists():
        pause.wait(0.05)
    note("ended", self.request.id, self.request.retries)


@app.task(bind=True, max_retries=2)
def retried(self) -> None:
    note("began", self.request.id, self.request.retries)
    if self.request.retries < 2:
        note("retried", self.request.id, self.request.retries)
        raise self.retry(countdown=1)
    note("ended", self.request.id, self.request.retries)


_ack = Channel.basic_ack


def noting_ack(self, delivery_tag, multiple=False):
    message = self.qos.get(delivery_tag)
    found = _ack(self, delivery_tag, multiple)
    note("acked", message.headers["id"], message.headers["retries"])
    return found


Channel.basic_ack = noting_ack
