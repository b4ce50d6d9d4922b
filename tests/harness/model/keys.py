"""Rules of keys: publishing with a key, an idempotency key, or both; all that goes by key."""

import asyncio
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import initialize, multiple, rule

from harness.model.keyring import links_below
from harness.model.machine import (
    NAMES,
    Machine,
    all_of_it,
    expected_receives,
    messages,
    precondition,
    queues,
)
from mq.model.errors import KeyNotFound, KeyTaken, PublishPurged, QueueNotFound
from mq.model.message import Envelope
from mq.model.names import Key, MessageId, QueueName

keys = st.sampled_from([Key.parse(text) for text in ("k", "K", "schlüssel/1")])


class WithKeys(Machine):
    """Publishing with keys, one after another and at once."""

    @initialize(target=messages, key=keys, idempotency=keys)
    def begin_with_some(self, key: Key, idempotency: Key) -> object:
        """So that whatever rules are drawn meet messages."""
        self.begin()
        made = []
        for envelope in (Envelope(), Envelope(key=key), Envelope(idempotency=idempotency)):
            made += self.publish_linked(NAMES[0], [b"first"], envelope)
        return multiple(*made)

    @rule(
        target=messages,
        queue=queues,
        bodies=st.lists(st.binary(max_size=20), min_size=1, max_size=3),
        key=keys,
        idempotency=keys,
        which=st.sampled_from(["key", "key", "idempotency", "both"]),
        priority=st.sampled_from([None, 0, 9]),
        delay_s=st.sampled_from([None, None, 20]),
        headers=st.sampled_from([(), (("ce-id", "7"),)]),
        at_once=st.booleans(),
    )
    def publish_with_keys(
        self,
        queue: QueueName,
        bodies: list[bytes],
        key: Key,
        idempotency: Key,
        which: str,
        priority: int | None,
        delay_s: float | None,
        headers: tuple[tuple[str, str], ...],
        at_once: bool,
    ) -> object:
        due_ms = None if delay_s is None else self.clock.now_ms() + round(delay_s * 1000)
        envelope = Envelope(
            priority=priority,
            key=None if which == "idempotency" else key,
            due_ms=due_ms,
            headers=headers,
            idempotency=None if which == "key" else idempotency,
        )
        if at_once:
            return multiple(*self.publish_linked(queue, bodies, envelope))
        made = [self.publish_linked(queue, [body], envelope) for body in bodies]
        return multiple(*(each for row in made for each in row))

    def publish_linked(
        self, queue: QueueName, bodies: Sequence[bytes], envelope: Envelope
    ) -> list[tuple[QueueName, MessageId]]:
        """Publishes these at once, at most one of which becomes a message; what came of it."""
        ends = self.ends_of(queue, bodies, envelope)
        now_ms = self.clock.now_ms()
        if queue not in self.model.queues:
            assert all(isinstance(each, QueueNotFound) for each in ends)
            return []
        made = []
        if envelope.idempotency is not None:
            for_s = self.model.queues[queue].idempotency_s
            first = self.model.keys.first(queue, envelope.idempotency, now_ms, for_s)
            if first is not None:
                assert [str(each) for each in ends] == [first] * len(ends)
                return []
        holder = None if envelope.key is None else self.model.holder(queue, envelope.key)
        if holder is None:
            # Of those that are told apart by nothing but a key that is in use at once, one wins.
            ids = {each for each in ends if isinstance(each, MessageId)}
            # Where a queue remembers no idempotency key, the last of them has its link.
            linked = self.idempotency_link(queue, envelope.idempotency)
            for message_id in sorted(ids, key=lambda each: (each.text == linked, each.text)):
                self.became(queue, message_id, bodies, envelope)
                made.append((queue, message_id))
            is_repeat = envelope.idempotency is not None and for_s > 0
            assert len(ids) == 1 or (envelope.key is None and not is_repeat)
            (message_id, *_) = ids
            if envelope.key is None:
                return made
            holder = self.model.find(queue, message_id)
            assert holder is not None
            ends = [each for each in ends if each != holder.id]
            if is_repeat:
                assert not ends
        for each in ends:
            assert isinstance(each, KeyTaken)
            assert envelope.key is not None
            assert (each.key, each.id) == (envelope.key.text, holder.id.text)
        return made

    def idempotency_link(self, queue: QueueName, key: Key | None) -> str | None:
        """What the disk says of an idempotency key."""
        found = links_below(self.path)["idempotency"]
        return None if key is None else found.get(f"{queue}/{key.written()}")

    def ends_of(
        self, queue: QueueName, bodies: Sequence[bytes], envelope: Envelope
    ) -> list[MessageId | BaseException]:
        """What came of publishes at once; said again where a purge refused one of them."""

        async def publish(bodies: Sequence[bytes]) -> list[MessageId | BaseException]:
            publishes = (self.broker.publish(queue, body, envelope) for body in bodies)
            return await asyncio.gather(*publishes, return_exceptions=True)

        ends: list[MessageId | BaseException] = self.run(publish(bodies))
        if not any(isinstance(each, PublishPurged) for each in ends):
            return ends
        assert self.model.marks_ms[queue] >= self.clock.now_ms()
        # From the first that is refused on ids begin after the mark: who got one later may have
        # come through, or have met the key of one that was about to be refused.
        made = [each for each in ends if isinstance(each, MessageId)]
        left = [
            body for body, each in zip(bodies, ends, strict=True) if not isinstance(each, MessageId)
        ]
        return made + self.run(publish(left))

    def became(
        self, queue: QueueName, message_id: MessageId, bodies: Sequence[bytes], envelope: Envelope
    ) -> None:
        """A message came of one of these, as a look at it says which."""
        now_ms = self.clock.now_ms()
        body = self.run(self.broker.read(queue, message_id, all_of_it)).body
        assert body in bodies
        assert message_id.key == envelope.key
        default = self.model.queues[queue].priority_default
        assert message_id.priority == (default if envelope.priority is None else envelope.priority)
        due_ms = envelope.due_ms or now_ms
        self.model.published(queue, message_id, body, envelope.headers, due_ms, now_ms)
        self.model.keys.taken(queue, message_id, envelope.idempotency, now_ms)

    @rule(queue=queues, key=keys)
    def find_by_key(self, queue: QueueName, key: Key) -> None:
        refusal = None if queue in self.model.queues else QueueNotFound
        holder = self.model.holder(queue, key)
        if refusal is None and holder is None:
            refusal = KeyNotFound
        found = self.run(self.broker.find_key(queue, key), refusal)
        assert refusal is not None or found == holder.id

    @rule(queue=queues, key=keys, receives=expected_receives)
    def remove_by_key(self, queue: QueueName, key: Key, receives: int | None) -> None:
        refusal = self.model.remove_key(queue, key, receives)
        self.run(self.broker.remove_by_key(queue, key, precondition(receives)), refusal)
