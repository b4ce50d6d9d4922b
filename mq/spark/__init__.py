"""mq on Spark: bulk reads, leases, streams and publishes as Spark jobs over a root's folders.

    spark = mq.spark.session()
    spark.read.format("mq").option("path", root).option("subscribe", "orders").load()

Importing this package imports no Spark: the names below are imported at their first use. No module
here has the name of one of them, since importing that module would replace the name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mq.spark.browsing import arrow_reader as arrow_reader
    from mq.spark.java import ensure_java as ensure_java
    from mq.spark.jobs.archive import archive as archive
    from mq.spark.jobs.archived import archived as archived
    from mq.spark.jobs.audit import audit as audit
    from mq.spark.jobs.drain import drain as drain
    from mq.spark.jobs.history import history as history
    from mq.spark.jobs.load import load as load
    from mq.spark.jobs.parsing import Parsed as Parsed
    from mq.spark.jobs.replay import replay as replay
    from mq.spark.jobs.shovel import shovel as shovel
    from mq.spark.jobs.streamed_folder import to_folder as to_folder
    from mq.spark.leasing import lease as lease
    from mq.spark.sessions import register as register
    from mq.spark.sessions import session as session

_WHERE: Final = {
    "Parsed": "mq.spark.jobs.parsing",
    "archive": "mq.spark.jobs.archive",
    "archived": "mq.spark.jobs.archived",
    "arrow_reader": "mq.spark.browsing",
    "audit": "mq.spark.jobs.audit",
    "drain": "mq.spark.jobs.drain",
    "ensure_java": "mq.spark.java",
    "history": "mq.spark.jobs.history",
    "lease": "mq.spark.leasing",
    "load": "mq.spark.jobs.load",
    "register": "mq.spark.sessions",
    "replay": "mq.spark.jobs.replay",
    "session": "mq.spark.sessions",
    "shovel": "mq.spark.jobs.shovel",
    "to_folder": "mq.spark.jobs.streamed_folder",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
