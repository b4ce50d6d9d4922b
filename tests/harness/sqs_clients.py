"""Clients of SQS in a venv of their own, as they want other versions than the tests: Celery,
Dramatiq, aiobotocore, the AWS CLI, and Amazon's SDK for JavaScript.
"""

import sys
from pathlib import Path

from harness.needs import cannot_run

PROGRAMS = Path(__file__).parents[1] / "examples" / "migrate" / "clients"
_VENV = Path(sys.prefix) / "sqs-clients"
AWS = {
    "AWS_ACCESS_KEY_ID": "jobs",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


def client(name: str) -> str:
    """The path of a program, or of a package of JavaScript. Without it the test cannot run."""
    folder = "node_modules" if name.startswith("@") else "bin"
    path = _VENV / folder / name
    if not path.exists():
        cannot_run(f"needs {path}, as .ci/run installs it")
    return str(path)
