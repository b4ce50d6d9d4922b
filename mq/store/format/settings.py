"""A queue's settings file, which has the settings that differ from the defaults. Only this module
knows the file.

`settings/{queue}.json` is one JSON object. The fields of the shape are written before the queue's
folder is made and never change; other fields change with the settings. Unknown fields are kept for
other versions. Written under the queues' lock.
"""

import errno
import json
import stat
from typing import Final

from mq.model.errors import BadSetting, SettingsUnreadable
from mq.model.limits import KIB
from mq.model.names import QueueName
from mq.model.settings import DIGITS_SETTING, FIXED_SETTINGS, SHARDS_SETTING, QueueSettings
from mq.store.disk.files import Files, is_gone
from mq.store.disk.replacing import write_over
from mq.store.disk.steps import Steps
from mq.store.format.bucket_names import Shape
from mq.store.format.layout import Layout

SETTINGS_BYTES_MAX: Final = 64 * KIB

Version = tuple[int, int, int]
"""Identifies one settings file of a queue."""

NO_FILE: Final[Version] = (0, 0, 0)

DEFAULT_SHAPE: Final = Shape()
"""The version of a queue without a settings file, always this object."""
# The errors of opening a folder, a symbolic link, a socket, or a file that this user may not read.
_NO_FILE_ERRORS: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM)

# Retries when the file is replaced while it is opened, which is rare.
_OPENS: Final = 2


def settings_version(layout: Layout, files: Files, queue: QueueName) -> Version:
    """The version of the queue's current file; NO_FILE without one."""
    status = files.status(layout.settings_of(queue))
    return NO_FILE if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)


def read_fields(layout: Layout, files: Files, queue: QueueName) -> dict[str, object]:
    """The fields of the queue's file, {} without one. Raises SettingsUnreadable: with a guessed
    shape, messages would not be found by their ids.
    """
    descriptor = _open(files, layout.settings_of(queue))
    if descriptor is None:
        return {}
    try:
        if not stat.S_ISREG(files.descriptor_status(descriptor).st_mode):
            raise SettingsUnreadable("no regular file")
        text = files.read(descriptor, SETTINGS_BYTES_MAX, 0)
    finally:
        files.close(descriptor)
    return parse_fields(text)


def _open(files: Files, path: str) -> int | None:
    """None: there is no file. Over a network mount, a file that was replaced between two calls may
    seem to be missing; that is retried, and never reads as a queue without settings.
    """
    for _ in range(_OPENS):
        try:
            return files.open_claimed(path)
        except OSError as error:
            if error.errno in _NO_FILE_ERRORS:
                raise SettingsUnreadable(str(error)) from error
            if not is_gone(error):
                raise
        if files.status(path) is None:
            return None
    raise SettingsUnreadable("it is there, and cannot be opened")


def parse_fields(text: bytes) -> dict[str, object]:
    """Parses a settings file. Raises SettingsUnreadable."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsUnreadable(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SettingsUnreadable("no JSON object")
    return found


def print_fields(fields: dict[str, object]) -> bytes:
    """The settings file with these fields."""
    return json.dumps(fields).encode() + b"\n"


def shape_in(fields: dict[str, object]) -> Shape:
    """The shape in a settings file. Raises SettingsUnreadable."""
    digits = _fixed(fields, DIGITS_SETTING, DEFAULT_SHAPE.digits)
    shards = _fixed(fields, SHARDS_SETTING, DEFAULT_SHAPE.shards)
    return DEFAULT_SHAPE if (digits, shards) == (DEFAULT_SHAPE.digits, 1) else Shape(digits, shards)


def settings_in(fields: dict[str, object], defaults: QueueSettings) -> QueueSettings:
    """The settings in a settings file. Raises SettingsUnreadable."""
    try:
        return defaults.with_fields(fields)
    except BadSetting as error:
        raise SettingsUnreadable(f"{error.parameter} is not {error.expected}") from None


def print_shape(shape: Shape) -> bytes:
    """The settings file of a queue with this shape and default settings."""
    return print_fields({DIGITS_SETTING: shape.digits, SHARDS_SETTING: shape.shards})


def write_shape(layout: Layout, files: Files, queue: QueueName, shape: Shape) -> Steps[None]:
    """Writes the shape of a queue that does not exist yet. The default shape has no file: a file
    that a former queue left is removed. Durable on return: once the queue's folder is.
    """
    fields = {} if shape == DEFAULT_SHAPE else parse_fields(print_shape(shape))
    yield from write_fields(layout, files, queue, fields)


def write_fields(
    layout: Layout, files: Files, queue: QueueName, fields: dict[str, object]
) -> Steps[None]:
    """Writes the queue's fields, or removes the file if there are none. Durable on return: no; the
    folder of settings is to be flushed.
    """
    path = layout.settings_of(queue)
    if fields:
        written = layout.new_settings_of(queue)
        yield from write_over(files, written, path, print_fields(fields))
    elif files.status(path) is not None:
        forget_settings(layout, files, queue)


def forget_settings(layout: Layout, files: Files, queue: QueueName) -> None:
    """Removes a queue's settings. Durable on return: no."""
    try:
        files.unlink(layout.settings_of(queue))
    except OSError as error:
        if not is_gone(error):
            raise


def _fixed(fields: dict[str, object], name: str, default: int) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or not FIXED_SETTINGS[name].accepts(value):
        raise SettingsUnreadable(f"{name} is {value!r}")
    return value
