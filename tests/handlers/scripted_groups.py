"""A group coordinator that answers as it is set up: for the shapes of answers that are hard to bring about for real."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from kafka_wire.messages.describe_groups import DescribedGroup, DescribedGroupMember


@attrs.define
class ScriptedGroups:
    """Has the methods of GroupCoordinator that handlers use. ``answer`` is what each returns, or raises if it is an
    error; ``asked`` are the arguments of every call, but for ``release_handler``.
    """

    answer: Any = None
    asked: list[tuple[Any, ...]] = attrs.Factory(list)

    def say(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        answer = self.answer(*arguments) if callable(self.answer) else self.answer
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    @property
    def runtime(self):
        return ScriptedRuntime(self)

    def call_steps(self, group_id, request, context, release_handler):
        yield trio.lowlevel.checkpoint
        return self.say(request, context)

    def fetch_offsets_steps(self, request, release_handler, *, require_stable=False):
        yield trio.lowlevel.checkpoint
        return self.say(request)

    async def delete_groups(self, group_ids, release_handler, *, validate_only=False):
        return self.say(group_ids)

    def list_groups(self, states, types):
        return self.say(states, types)

    def machine(self, group_id, *, allow_empty=False):
        return ScriptedShard(self)


@attrs.define
class ScriptedRuntime:
    """Finds the coordinator of any group; which one is its coordinator's answer."""

    groups: ScriptedGroups

    def create_topic(self):
        yield trio.lowlevel.checkpoint

    def find_nowait(self, key):
        return self.groups.say(key)


@attrs.define
class ScriptedShard:
    """The shard of any group; what it describes is its coordinator's answer."""

    groups: ScriptedGroups

    def describe(self, group_id):
        return self.groups.say(group_id)

    def describe_consumer_group(self, group_id):
        yield
        return self.groups.say(group_id)


def classic_group(group_id: str) -> DescribedGroup:
    """The description of a group with one member, as a coordinator gives it."""
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/127.0.0.1", member_metadata=b"s", member_assignment=b"a"
    )
    return DescribedGroup(
        group_id=group_id, group_state="Stable", protocol_type="consumer", protocol_data="range", members=[member]
    )


def consumer_group(group_id: str) -> DescribedConsumerGroup:
    """The description of a KIP-848 group without members."""
    return DescribedConsumerGroup(
        group_id=group_id, group_state="Empty", group_epoch=3, assignment_epoch=3, assignor_name="uniform", members=[]
    )
