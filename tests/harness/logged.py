"""What a record of the log says happened, without its fields."""

import logging

from mq.model.log import Message


def event(record: logging.LogRecord) -> str:
    return record.msg.event if isinstance(record.msg, Message) else record.getMessage()
