"""The columns of `format("mq")`: one row a message. No pyspark here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mq.model.errors import MqError

# Column -> Spark's type as it writes it, in order. `size` is of the body, in bytes.
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
    "size": "bigint",
    "state": "string",
}
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


@dataclass(eq=False)
class OtherSchema(MqError):
    """A reader's own schema that is not ours."""

    given: str

    def __str__(self) -> str:
        return f"mq: a message's columns are fixed, read without schema(...): {SCHEMA}"


def check_schema(columns: Iterable[tuple[str, str]]) -> None:
    """Refuses columns (name and type, as Spark writes it) other than a message's. Raises
    OtherSchema.
    """
    found = list(columns)
    if found != list(COLUMNS.items()):
        raise OtherSchema(", ".join(f"{name} {kind}" for name, kind in found))
