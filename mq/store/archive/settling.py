"""Makes removals and unlinks by any process durable, all at once."""

from collections.abc import Iterable

from mq.store.core.root import Root
from mq.store.disk.files import Files, is_gone
from mq.store.disk.mounts import file_system_of, tells_syncfs_errors
from mq.store.disk.steps import Flush, Steps


def settle_removals(root: Root) -> Steps[None]:
    """Makes every move of a message so far durable: by one syncfs if that reports every error, else
    by an fsync of each folder of messages. Blocking for as long as that takes. Raises OSError.
    Durable on return: yes.
    """
    if takes_syncfs(root):
        _sync_file_system(root)
    else:
        yield Flush(folders=(root.layout.remove,))


def settle_unlinks(root: Root, spots: Iterable[str]) -> None:
    """Likewise for unlinks in these folders below remove/ ("": remove/ itself), and for removed
    ones among them. Blocking. Raises OSError. Durable on return: yes.
    """
    if takes_syncfs(root):
        _sync_file_system(root)
        return
    for spot in spots:
        _sync_folder_if_there(root.files, f"{root.layout.remove}/{spot}".rstrip("/"))
    root.files.sync_folder(root.layout.remove)


def takes_syncfs(root: Root) -> bool:
    """Whether one syncfs makes all moves and unlinks durable and reports every error."""
    file_system = file_system_of(root.layout.root)
    # A file system in memory has no media: there syncfs does nothing.
    return file_system.in_memory or tells_syncfs_errors(file_system)


def _sync_file_system(root: Root) -> None:
    descriptor = root.files.open_folder(root.layout.root)
    try:
        root.files.sync_file_system(descriptor)
    finally:
        root.files.close(descriptor)


def _sync_folder_if_there(files: Files, path: str) -> None:
    try:
        files.sync_folder(path)
    except OSError as error:
        if not is_gone(error):
            raise
