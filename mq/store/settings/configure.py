"""Changes a queue's settings.

PROTOCOL.md, "change settings", has the steps and what a crash after each leaves.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from mq.model.errors import SettingsChanged, ShapeFixed
from mq.model.names import QueueName
from mq.model.settings import DIGITS_SETTING, FIXED_SETTINGS, SHARDS_SETTING, QueueSettings, merged
from mq.store.core.facts import Configured
from mq.store.core.locks import queues_locked
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import Shape
from mq.store.format.settings import read_fields, settings_in, settings_version, write_fields

Match = Callable[[str], bool]
"""Whether an entity tag is one that the client named."""


def change_settings(
    root: Root,
    queue: QueueName,
    patch: Mapping[str, object],
    defaults: QueueSettings,
    if_match: Match | None = None,
) -> Steps[Configured]:
    """Merges a patch, checked by `check_patch`, into the queue's settings. Returns the new
    settings. Unknown fields of the file stay.

    Raises QueueNotFound, SettingsChanged, ShapeFixed, SettingsUnreadable, Busy: nothing is changed
    then. Durable on return: yes.
    """
    layout, files = root.layout, root.files
    with queues_locked(root):
        if not queue_exists(root, queue):
            yield from no_such_queue(root, queue)
        known = root.facts.configured(queue, defaults)
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
        if wanted_fields != fields:
            yield from write_fields(layout, files, queue, wanted_fields)
        # Also unchanged: the process that wrote it may not have flushed it.
        yield Flush(folders=(layout.settings,))
        root.facts.look_again(queue)
        settings = settings_in(wanted_fields, defaults)
        return replace(known, settings=settings, version=settings_version(layout, files, queue))


_DEFAULT_SHAPE: dict[str, object] = {DIGITS_SETTING: Shape().digits, SHARDS_SETTING: Shape().shards}
