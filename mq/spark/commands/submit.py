"""The script for spark-submit: `spark-submit $(python -m mq.spark.commands.submit --where) JOB
...`.
"""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs `mqctl pipeline` with the process's arguments, and ends with its exit code."""
    if sys.argv[1:] == ["--where"]:
        print(__file__)
        sys.exit(0)
    from mq.tools.mqctl import cli  # noqa: PLC0415 - spark-submit runs this file by its path.

    sys.argv[1:1] = ["pipeline"]
    cli.main()


if __name__ == "__main__":
    main()
