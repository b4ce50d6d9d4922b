"""The columns of `format("mq")`, as Spark's DDL: one row a message. No pyspark here."""

from typing import Final

# Column -> Spark's type, in order.
COLUMNS: Final = {
    "queue": "string",
    "id": "string",
    "key": "string",
    "value": "binary",
    "headers": "map<string,string>",
    "priority": "int",
    "published": "timestamp",
    "due": "timestamp",
    "receives": "int",
    "size": "long",
    "state": "string",
}
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
