"""`--standalone`: mq-mover and mq-reaper as children of the process that was given the flag."""

from mq.daemon.children import Child, Children
from mq.runtime.logs import LogFormat
from mq.runtime.server_settings import ServerSettings


def upkeep(settings: ServerSettings, log_format: LogFormat, log_level: str) -> Children:
    """The two daemons beside mq, for its root; not started yet."""
    flags = ("--root", str(settings.root), "--log-format", log_format, "--log-level", log_level)
    return Children(
        [
            # -P: the installed daemons, not what the current folder has under their names.
            Child(
                "mq-mover",
                (
                    *("-P", "-m", "mq_mover", "--exit-with-stdin", *flags),
                    *("--folder-max", str(settings.folder_max)),
                    *("--refresh", str(settings.refresh_s)),
                ),
            ),
            Child("mq-reaper", ("-P", "-m", "mq_reaper", "--exit-with-stdin", *flags)),
        ]
    )
