"""Changing a queue's settings, and looking whether others have.

FORMAT.md, "change settings", has the steps and what a crash after each leaves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from mq.model.errors import SettingsChanged, ShapeFixed
from mq.model.names import QueueName
from mq.model.settings import (
    DIGITS_SETTING,
    FIXED_SETTINGS,
    SHARDS_SETTING,
    QueueSettings,
    merged,
    tag_of,
)
from mq.store.core.queues_lock import queues_locked
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import Shape
from mq.store.format.settings import (
    Version,
    read_fields,
    settings_in,
    settings_version,
    shape_in,
    write_fields,
)

_DEFAULTS: Final = QueueSettings()

Match = Callable[[str], bool]
"""Asked whether an entity tag is one that a client named."""


@dataclass(frozen=True, slots=True)
class Configured:
    """A queue's effective settings with its shape, and which file says so."""

    settings: QueueSettings
    shape: Shape
    version: Version

    @classmethod
    def read(cls, root: Root, queue: QueueName, defaults: QueueSettings = _DEFAULTS) -> Self:
        """As they are now; `defaults`, where the daemon has others. Raises SettingsUnreadable."""
        version = settings_version(root.layout, root.files, queue)  # First: a later file differs.
        fields = read_fields(root.layout, root.files, queue)
        return cls(settings_in(fields, defaults), shape_in(fields), version)

    def as_json(self) -> dict[str, object]:
        """The effective values, by field."""
        shape = {DIGITS_SETTING: self.shape.digits, SHARDS_SETTING: self.shape.shards}
        return {**self.settings.as_json(), **shape}

    @property
    def tag(self) -> str:
        """An entity tag's text, which other values do not have."""
        return tag_of(self.as_json())


def change_settings(
    root: Root,
    queue: QueueName,
    patch: Mapping[str, object],
    defaults: QueueSettings,
    if_match: Match | None = None,
) -> Steps[Configured]:
    """Merges a patch, which `check_patch` has seen, into the queue's settings; what they are then.
    What the file says that is not known here stays.

    Raises QueueNotFound, SettingsChanged, ShapeFixed, SettingsUnreadable, Busy; nothing is changed
    then. Durable on return: yes.
    """
    layout, files = root.layout, root.files
    with queues_locked(root):
        if not queue_exists(root, queue):
            yield from no_such_queue(root, queue)
        known = Configured.read(root, queue, defaults)
        if if_match is not None and not if_match(known.tag):
            raise SettingsChanged
        before = known.as_json()
        fixed = {**_DEFAULT_SHAPE, **patch}
        for name in FIXED_SETTINGS:
            wanted = _DEFAULT_SHAPE[name] if fixed[name] is None else fixed[name]
            if name in patch and wanted != before[name]:
                raise ShapeFixed(queue.text)
        fields = read_fields(layout, files, queue)
        changeable = {name: value for name, value in patch.items() if name not in FIXED_SETTINGS}
        wanted_fields = merged(fields, changeable)
        if wanted_fields == fields:
            # As it was; but whoever wrote it has perhaps not flushed that.
            yield Flush(folders=(layout.settings,))
        else:
            yield from write_fields(layout, files, queue, wanted_fields)
        settings = settings_in(wanted_fields, defaults)
        return replace(known, settings=settings, version=settings_version(layout, files, queue))


_DEFAULT_SHAPE: dict[str, object] = {
    DIGITS_SETTING: Shape().digits,
    SHARDS_SETTING: Shape().shards,
}
