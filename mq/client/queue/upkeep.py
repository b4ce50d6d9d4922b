"""A queue as a whole: making, describing and deleting it, its settings, schedules and shovel."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from mq.client.bodies import GivenBody
from mq.client.calls import queues, schedules, settings, shovels
from mq.client.queue.base import OfQueue
from mq.client.values import ABSENT, Description, Schedule, Settings, ShovelProgress


class Upkeep(OfQueue):
    """What concerns a queue as a whole. Each raises QueueNotFound, but for `create`."""

    __slots__ = ()

    async def create(self, *, bucket: int | None = None, shards: int | None = None) -> bool:
        """Makes the queue where it is not there; whether this made it (a repeat after a lost answer
        says no). Durable on return. `bucket` and `shards` say how it keeps a large backlog. Raises
        SettingsFixed where it was made with others, QueueExpired.
        """
        return await self._sender.send(queues.create(self.name, bucket, shards))

    async def describe(self) -> Description:
        """Its counts and settings, some of them a second old."""
        return await self._sender.send(queues.describe(self.name))

    async def delete(self) -> None:
        """Deletes the queue and its messages. Durable on return."""
        await self._sender.send(queues.delete(self.name))

    async def purge(self) -> datetime:
        """Purges all messages that were published until now; until when. Durable on return. Not
        tried again once it may have been done: it would purge what came since.
        """
        return await self._sender.send(queues.purge(self.name))

    async def settings(self) -> Settings:
        """What is effective, and the entity tag."""
        return await self._sender.send(settings.read(self.name))

    async def change_settings(
        self, changes: Mapping[str, Any], *, if_match: str | None = None
    ) -> Settings:
        """Sets these, None for a default; what is effective then. Durable on return. `if_match`: an
        entity tag; SettingsChanged is raised where the settings are others by now. Raises Refused.
        """
        return await self._sender.send(settings.change(self.name, changes, if_match))

    async def schedule(
        self,
        name: str,
        body: GivenBody = b"",
        *,
        json: Any = ABSENT,
        every_s: float | None = None,
        delay_s: float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        count: int | None = None,
        until: datetime | None = None,
        overlap: Literal["allow", "skip"] | None = None,
        priority: int | None = None,
        key: str | None = None,
        visibility_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Schedule:
        """Makes a schedule, or replaces the one of that name; one that says the same goes on as it
        was. Durable on return. `json`, instead of a body, is sent as `application/json`. `every_s`,
        with `delay_s` before the first; or `cron` in the zone `tz`. `count` and `until` end it.
        Raises Refused, ValueError.
        """
        call = schedules.put(
            self.name,
            name,
            body,
            json,
            every_s=every_s,
            delay_s=delay_s,
            cron=cron,
            tz=tz,
            count=count,
            until=until,
            overlap=overlap,
            priority=priority,
            key=key,
            visibility_s=visibility_s,
            headers=headers,
            content_type=content_type,
        )
        return await self._sender.send(call)

    async def schedules(self) -> list[Schedule]:
        """All of the queue's, by name, without their bodies."""
        return await self._sender.send(schedules.read_all(self.name))

    async def get_schedule(self, name: str) -> Schedule:
        """What a schedule says, and how far it is. Raises ScheduleNotFound."""
        return await self._sender.send(schedules.read(self.name, name))

    async def delete_schedule(self, name: str) -> None:
        """Has it fire no more; its messages stay. Durable on return. Raises ScheduleNotFound."""
        await self._sender.send(schedules.delete(self.name, name))

    async def shovel(
        self,
        *,
        limit: int | None = None,
        rate: int | None = None,
        older_than_s: float | None = None,
        key: str | None = None,
        priority: str | int | None = None,
        max_receives: int | None = None,
        dry_run: bool | None = None,
    ) -> str:
        """Begins to move what lies in the sideline back to the queue; the run's id.
        `priority`: such as 5 or `3..7`; `key`: such as `eu-*`; `rate`: messages a second. Raises
        ShovelRunning.
        """
        call = shovels.begin(
            self.name,
            limit=limit,
            rate=rate,
            older_than_s=older_than_s,
            key=key,
            priority=priority,
            max_receives=max_receives,
            dry_run=dry_run,
        )
        return await self._sender.send(call)

    async def shovel_progress(self) -> ShovelProgress:
        """How far the run is, or what came of the last. Raises ShovelNotFound."""
        return await self._sender.send(shovels.read(self.name))

    async def stop_shovel(self) -> ShovelProgress:
        """Has the run end after what it has in hand; how it stands. Raises ShovelNotFound."""
        return await self._sender.send(shovels.stop(self.name))
