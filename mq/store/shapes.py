"""A queue's settings file: how its buckets are named, where that is not as by default.

`settings/{queue}.json` is written before the queue's folder is made, and only by whoever makes it;
fields that are not known here are left to those who know them.
"""

import contextlib
import errno
import json
import stat
from typing import Final

from mq.errors import SettingsUnreadable
from mq.limits import (
    BUCKET_DIGITS_DEFAULT,
    BUCKET_DIGITS_MAX,
    BUCKET_DIGITS_MIN,
    SETTINGS_BYTES_MAX,
    SHARDS_MAX,
)
from mq.names import QueueName
from mq.store.files import Files, is_gone
from mq.store.layout import Layout, Shape
from mq.store.steps import Flush, Steps

_DIGITS, _SHARDS = "bucket", "shards"
# What opening says of a folder, a symbolic link, a socket, and of what this user may not read.
_NO_FILE: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM)


def read_shape(layout: Layout, files: Files, queue: QueueName) -> Shape:
    """The queue's shape; the default where it has no file. Raises SettingsUnreadable: with a shape
    that is guessed, messages would not be found by their ids.
    """
    try:
        descriptor = files.open_claimed(layout.settings_of(queue))
    except OSError as error:
        if is_gone(error):
            return Shape()
        if error.errno in _NO_FILE:
            raise SettingsUnreadable(str(error)) from error
        raise
    try:
        if not stat.S_ISREG(files.descriptor_status(descriptor).st_mode):
            raise SettingsUnreadable("no regular file")
        text = files.read(descriptor, SETTINGS_BYTES_MAX, 0)
    finally:
        files.close(descriptor)
    return parse_shape(text)


def parse_shape(text: bytes) -> Shape:
    """What a settings file says. Raises SettingsUnreadable."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsUnreadable(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SettingsUnreadable("no JSON object")
    return Shape(
        _number(found, _DIGITS, BUCKET_DIGITS_DEFAULT, BUCKET_DIGITS_MIN, BUCKET_DIGITS_MAX),
        _number(found, _SHARDS, 1, 1, SHARDS_MAX),
    )


def print_shape(shape: Shape) -> bytes:
    """The settings file of a queue of this shape."""
    return json.dumps({_DIGITS: shape.digits, _SHARDS: shape.shards}).encode() + b"\n"


def write_shape(layout: Layout, files: Files, queue: QueueName, shape: Shape) -> Steps[None]:
    """Says what the shape of a queue is that is not there yet: by a file, or, for the default, by
    none, also where a queue of that name has left one. Durable on return: yes.
    """
    path = layout.settings_of(queue)
    if shape == Shape():
        if files.status(path) is None:
            return
        yield from forget_shape(layout, files, queue)
        return
    written = layout.new_settings_of(queue)
    with contextlib.suppress(FileNotFoundError):
        files.unlink(written)  # An earlier try of this process, which failed.
    descriptor = files.create(written)
    try:
        files.write(descriptor, print_shape(shape))
        yield Flush(files=(descriptor,))
    finally:
        files.close(descriptor)
    files.rename(written, path)
    yield Flush(folders=(layout.settings,))


def forget_shape(layout: Layout, files: Files, queue: QueueName) -> Steps[None]:
    """Takes the settings of a queue away that is not there (any more). Durable on return: yes."""
    try:
        files.unlink(layout.settings_of(queue))
    except OSError as error:
        if not is_gone(error):
            raise
        return
    yield Flush(folders=(layout.settings,))


def _number(found: dict[str, object], field: str, default: int, least: int, most: int) -> int:
    value = found.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise SettingsUnreadable(f"{field} is {value!r}")
    return value
