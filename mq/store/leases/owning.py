"""Who uses a consumer's name: one query at a time."""

from dataclasses import dataclass
from typing import Self

from mq.model.errors import Busy, ConsumerBusy
from mq.model.names import ConsumerName
from mq.store.core.moves import named_status
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.steps import Flush, Steps
from mq.store.format.lease_names import lease_names, open_count
from mq.store.format.pipeline import lease_path, owner_lock


@dataclass(frozen=True, slots=True)
class Owner:
    """A consumer's name, used by this process alone until `close`, or until it dies."""

    consumer: ConsumerName
    _root: Root
    _descriptor: int

    def close(self) -> None:
        """Others may use the name."""
        self._root.files.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def own(root: Root, consumer: ConsumerName) -> Owner:
    """Takes the consumer's name for this process. Raises ConsumerBusy when another one, or another
    Owner of this one, has it; OSError.
    """
    path = owner_lock(root.layout, consumer)
    descriptor = root.files.open_kept(path)
    try:
        # Whoever had it may have forgotten the consumer, and the file with it.
        if root.files.lock(descriptor) and named_status(root, path, descriptor) is not None:
            return Owner(consumer, root, descriptor)
    except BaseException:
        root.files.close(descriptor)
        raise
    root.files.close(descriptor)
    raise ConsumerBusy(consumer.text)


def forget_consumer(root: Root, consumer: ConsumerName) -> Steps[None]:
    """Takes away what is known of a consumer that has no open lease and comes not back: its next
    lease would be number 1 again. For its owner. Raises Busy when it has open leases; OSError.
    Durable on return: yes.
    """
    names = lease_names(root.layout, root.files)
    ours = {lease: files for lease, files in names.items() if lease.consumer == consumer}
    if open_count(ours.values()):
        raise Busy("the consumer has open leases")
    for lease, files in ours.items():
        for file in files:
            unlink_if_there(root.files, lease_path(root.layout, lease, file))
    unlink_if_there(root.files, owner_lock(root.layout, consumer))
    yield Flush(folders=(root.layout.leases,))
