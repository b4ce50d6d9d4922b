"""Loggers whose messages contain their fields, with any formatter."""

import json
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any


class Message:
    """An event and its fields. As text it is a line with both; a formatter with a place of its own
    for fields takes them from here.
    """

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return self.event + shown(self.fields)


class Logger(logging.LoggerAdapter[logging.Logger]):
    """Puts the fields of `extra={"fields": {...}}` into the message. A message with arguments has
    its facts in its words and needs a plain `logging.Logger`.
    """

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        fields = kwargs.get("extra", {}).get("fields")
        return (Message(msg, fields) if fields else msg), kwargs


def logger(name: str) -> Logger:
    return Logger(logging.getLogger(name))


def shown(fields: Mapping[str, object]) -> str:
    """Fields as text behind a message: each after a space, and quoted where necessary."""
    return "".join(f" {name}={_quoted(value)}" for name, value in fields.items())


def _quoted(value: object) -> str:
    text = str(value)
    if text and not any(char.isspace() or char in "\"='" for char in text):
        return text
    return json.dumps(text)
