"""mq on Spark: bulk reads, leases, streams and publishes as Spark jobs over a root's folders.

    spark = mq.spark.session()
    spark.read.format("mq").option("path", root).option("subscribe", "orders").load()

Importing this package imports no Spark; the names below are got when they are first used. No
module here has the name of one of them: importing it would put the module in the name's place.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mq.spark.java import ensure_java as ensure_java
    from mq.spark.leasing import lease as lease
    from mq.spark.sessions import register as register
    from mq.spark.sessions import session as session

_WHERE: Final = {
    "ensure_java": "mq.spark.java",
    "lease": "mq.spark.leasing",
    "register": "mq.spark.sessions",
    "session": "mq.spark.sessions",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
