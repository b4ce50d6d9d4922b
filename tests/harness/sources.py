"""Real servers whose messages are moved into mq: SQS (as moto serves it), RabbitMQ, beanstalkd."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.bench.others import rabbitmq as bench_rabbitmq
from deploy.bench.others.rival import free_port, process
from harness.needs import cannot_run, program

# What boto3 finds, and no test may find anything else.
AWS = {
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@contextlib.contextmanager
def sqs(folder: Path) -> Iterator[str]:
    """The URL of an SQS; boto3 finds it in the environment, with a region and credentials."""
    port = free_port()
    command = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
    url = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as patch, process(folder, port, *command):
        for name, value in {**AWS, "AWS_ENDPOINT_URL_SQS": url}.items():
            patch.setenv(name, value)
        yield url


@contextlib.contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """The URL of a RabbitMQ."""
    if not Path(bench_rabbitmq.PROGRAM).exists():
        cannot_run("needs RabbitMQ: apt-get install rabbitmq-server")
    port = free_port()
    # Of the disk's free space the tests need little, and a small one is no reason to block them.
    conf = f"listeners.tcp.1 = 127.0.0.1:{port}\ndisk_free_limit.absolute = 1MB\n"
    with bench_rabbitmq.rabbitmq(folder, port, conf, ""):
        yield f"amqp://127.0.0.1:{port}"


@contextlib.contextmanager
def beanstalkd(folder: Path) -> Iterator[str]:
    """The address of a beanstalkd."""
    program("beanstalkd")
    port = free_port()
    with process(folder, port, "beanstalkd", "-l", "127.0.0.1", "-p", str(port)):
        yield f"127.0.0.1:{port}"
