"""What happens to a simulated cluster: each fault begins, lasts for a while, and ends; several may go on at a time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs
import trio

from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.simulation.cluster.cluster_clients import ClusterConnection
from tests.simulation.cluster.simulated_cluster import CLIENTS, ClusterMachine, SimulatedCluster
from tests.simulation.simulated_clients import TOPIC
from tests.simulation.simulated_transactions import OUTPUT_TOPIC
from tests.simulation.simulated_world import ConnectionLost, World
from trio_broker.broker import Broker
from trio_broker.cluster.leader_elections import ElectionType
from trio_broker.cluster.partition_reassignments import Reassignment
from trio_broker.cluster.replication_control import NewTopic, TopicTarget
from trio_broker.common.topic_partition import TopicPartition

Fault = Callable[["ClusterFaults"], Awaitable[None]]

End = Callable[[ClusterMachine], Awaitable[None]]
"""Of a process."""

LIKES_LEADERS = 0.5
"""How often a fault is for the leader of the topic, and not for any broker."""

LIKES_CONTROLLERS = 0.2


@attrs.define(eq=False)
class ClusterFaults:
    """Draws faults. ``lasting_seconds`` is how long one lasts, on the average."""

    cluster: SimulatedCluster
    world: World
    lasting_seconds: float
    counts: Counter[str]
    _names: itertools.count[int] = attrs.field(factory=itertools.count)

    async def run(self, faults: tuple[str, ...], fault_seconds: float, until: float) -> None:
        """Let ``faults`` happen until ``until``; what lasts longer ends then."""
        chance = self.cluster.chance
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = until
            while True:
                await trio.sleep(chance.expovariate(1 / fault_seconds))
                name = chance.choice(faults)
                self.counts[name] += 1
                nursery.start_soon(FAULTS[name], self)

    async def _last(self) -> None:
        await trio.sleep(self.cluster.chance.expovariate(1 / self.lasting_seconds))

    def _tell(self, text: str) -> None:
        self.cluster.tell(f"FAULT {text}")

    # ---- whom

    def _somebody(self) -> ClusterMachine:
        """A machine: often that of the leader, or of the controller."""
        chance, cluster = self.cluster.chance, self.cluster
        draw, image = chance.random(), cluster.image()
        found: ClusterMachine | None = None
        if image is not None and draw < LIKES_LEADERS and TOPIC in image.topics:
            found = cluster.machine(image.topics[TOPIC].partitions[0].leader)
        elif draw > 1 - LIKES_CONTROLLERS:
            found = cluster.controller
        return found or chance.choice(cluster.machines)

    # ---- brokers

    async def kill(self) -> None:
        """A process is killed: what it has written stays."""
        await self._end(self._somebody(), ClusterMachine.kill, "is killed")

    async def cut_power(self) -> None:
        """The power of a machine fails."""
        await self._end(self._somebody(), ClusterMachine.cut_power, "loses its power")

    async def cut_power_of_several(self) -> None:
        """The power of several machines fails at once."""
        await self._end_several(ClusterMachine.cut_power, "loses its power")

    async def kill_several(self) -> None:
        """Several processes are killed at once."""
        await self._end_several(ClusterMachine.kill, "is killed")

    async def stop_cleanly(self) -> None:
        """A broker is stopped under control, and started again."""
        machine = self._somebody()
        if machine.serves and machine.is_wanted:
            self._tell(f"{machine.name} is asked to stop")
            await machine.stop()
            self._tell(f"{machine.name} has stopped")
            await self._last()
            await machine.start()

    async def _end_several(self, end: End, what: str) -> None:
        chance, machines = self.cluster.chance, self.cluster.machines
        async with trio.open_nursery() as nursery:
            for machine in chance.sample(machines, chance.randint(2, len(machines))):
                nursery.start_soon(self._end, machine, end, what)

    async def _end(self, machine: ClusterMachine, end: End, what: str) -> None:
        if not machine.is_wanted or (end is ClusterMachine.cut_power and not self._may_lose_power()):
            return
        self._tell(f"{machine.name} {what}")
        with trio.CancelScope(shield=True):
            await end(machine)
        await self._last()
        await machine.start()

    def _may_lose_power(self) -> bool:
        """With fsync always. Without, what is acknowledged is in the memory of the in-sync replicas, of which one may
        go at a time."""
        if self.cluster.durability == "fsync":
            return True
        image = self.cluster.image()
        if image is None or len(self.cluster.serving) < len(self.cluster.machines):
            return False
        partitions = (each for topic in image.topics.values() for each in topic.partitions.values())
        return all(len(each.isr) == len(each.replicas) for each in partitions)

    async def pause(self) -> None:
        """A process stands still."""
        machine = self._somebody()
        self._tell(f"{machine.name} stands still")
        machine.pause()
        await self._last()
        machine.resume()
        self._tell(f"{machine.name} goes on")

    # ---- the network

    async def isolate(self) -> None:
        """A broker is cut off from all others."""
        await self._cut_off(self._somebody())

    async def isolate_with_etcd(self) -> None:
        """A broker is cut off from all others and from etcd; clients may reach it."""
        machine = self._somebody()
        etcd = machine.etcd
        etcd.cut()
        await self._cut_off(machine)
        etcd.heal()

    async def cut_two(self) -> None:
        """Two brokers are cut off from each other."""
        one, other = self.cluster.chance.sample(self.cluster.machines, 2)
        await self._cut(one, [other])

    async def _cut_off(self, machine: ClusterMachine) -> None:
        await self._cut(machine, [each for each in self.cluster.machines if each is not machine])

    async def _cut(self, machine: ClusterMachine, others: list[ClusterMachine]) -> None:
        names = [each.name for each in others]
        links = [link for name in names for link in self.cluster.network.links(machine.name, name)]
        self._tell(f"{machine.name} is cut off from {names}")
        for link in links:
            link.cut()
        await self._last()
        self._tell(f"{machine.name} reaches {names}")
        for name in names:
            if self.cluster.chance.random() < 0.5:
                self.cluster.network.break_connections(machine.name, name)
        for link in links:
            link.heal()

    async def cut_one_way(self) -> None:
        """What one broker sends another does not arrive."""
        one, other = self.cluster.chance.sample(self.cluster.machines, 2)
        link = self.cluster.network.link(one.name, other.name)
        self._tell(f"nothing gets from {one.name} to {other.name}")
        link.cut()
        await self._last()
        link.heal()
        self._tell(f"everything gets from {one.name} to {other.name}")

    async def cut_clients(self) -> None:
        """Clients do not reach a broker."""
        machine = self._somebody()
        links = self.cluster.network.links(CLIENTS, machine.name)
        self._tell(f"clients do not reach {machine.name}")
        for link in links:
            link.cut()
        await self._last()
        for link in links:
            link.heal()

    async def cut_etcd(self) -> None:
        """A broker does not reach etcd."""
        etcd, name = (machine := self._somebody()).etcd, machine.name
        self._tell(f"{name} does not reach etcd")
        etcd.cut()
        await self._last()
        etcd.heal()
        self._tell(f"{name} reaches etcd")

    async def slow_links(self) -> None:
        """Messages from and to a broker take long."""
        machine = self._somebody()
        seconds = self.cluster.chance.choice((0.05, 0.3, 1.0))
        links = self.cluster.links_of(machine)
        self._tell(f"messages of {machine.name} take up to {seconds} s")
        before = [link.delay_seconds for link in links]
        for link in links:
            link.delay_seconds = seconds
        await self._last()
        for link, delay_seconds in zip(links, before, strict=True):
            link.delay_seconds = delay_seconds

    # ---- disks

    async def slow_disk(self) -> None:
        """The syncs of a broker take long."""
        machine = self._somebody()
        self._tell(f"the disk of {machine.name} is slow")
        machine.slow_syncs(self.cluster.chance.choice((0.2, 1.0)), self.cluster.chance.choice((0.05, 0.5, 2.0)))
        await self._last()
        machine.slow_syncs(0.0, 0.0)

    async def fill_disk(self) -> None:
        """The disk of a broker is full, or nearly."""
        machine = self._somebody()
        self._tell(f"the disk of {machine.name} is full")
        machine.fill_disk(self.cluster.chance.randrange(20_000))
        await self._last()
        machine.empty_disk()
        self._tell(f"the disk of {machine.name} has room")

    async def lose_disk(self) -> None:
        """One of two disks of a broker fails, and it starts without; the next process has both again."""
        machine = self._somebody()
        self._tell(f"{machine.name} loses a disk")
        machine.lose_second_disk()
        await self._last()
        await self._end(machine, ClusterMachine.kill, "is killed, to start without a disk")
        await self._last()
        machine.find_second_disk()
        await self._end(machine, ClusterMachine.kill, "is killed, to start with its disk")

    async def start_without_disk(self) -> None:
        """A broker ends in some way and starts at once, without one of its two disks; the next process has both."""
        machine = self._somebody()
        if not (machine.serves and machine.is_wanted):
            return
        end = self.cluster.chance.choice((ClusterMachine.kill, ClusterMachine.cut_power, ClusterMachine.stop))
        if end is ClusterMachine.cut_power and not self._may_lose_power():
            end = ClusterMachine.kill
        self._tell(f"{machine.name} ends by {end.__name__}, to start without a disk")
        await end(machine)
        machine.lose_second_disk()
        await machine.start()
        await self._last()
        machine.find_second_disk()
        await self._end(machine, ClusterMachine.kill, "is killed, to start with its disk")

    async def move_replica(self) -> None:
        """A replica moves to the other disk of its broker."""
        chance, machine = self.cluster.chance, self._somebody()
        topic_partition = TopicPartition(chance.choice((TOPIC, OUTPUT_TOPIC)), 0)

        async def move(broker: Broker) -> None:
            replicas = broker.services.replicas
            if (partition := replicas.find(topic_partition)) is not None:
                directories = replicas.log_manager.directories
                [other] = [each for each in directories if each.path != partition.log.directory.parent]
                self._tell(f"{topic_partition} on {machine.name} moves to {other.path}")
                with suppress(KafkaError):
                    await replicas.alter_log_dirs.alter(topic_partition, other)

        await machine.in_broker(move)

    # ---- etcd

    async def lose_etcd_leader(self) -> None:
        """etcd has no leader for a while."""
        self._tell("etcd has no leader")
        self.cluster.etcd.lose_leader()
        await self._last()
        self.cluster.etcd.elect_leader()
        self._tell("etcd has a leader")

    async def stop_etcd(self) -> None:
        """etcd is away for a while."""
        self._tell("etcd is stopped")
        self.cluster.etcd.stop()
        await self._last()
        self.cluster.etcd.start()
        self._tell("etcd is started")

    async def pause_etcd(self) -> None:
        """etcd stands still."""
        self._tell("etcd stands still")
        self.cluster.etcd.pause()
        await self._last()
        self.cluster.etcd.resume()
        self._tell("etcd goes on")

    async def compact_etcd(self) -> None:
        """etcd forgets its history."""
        self._tell("etcd is compacted")
        self.cluster.etcd.state.compact(self.cluster.etcd.state.revision)

    # ---- what administrators do

    async def reassign(self) -> None:
        """A partition gets other replicas, more or fewer of them."""
        chance, cluster = self.cluster.chance, self.cluster
        topic, brokers = chance.choice((TOPIC, OUTPUT_TOPIC)), len(cluster.machines)
        # One of three or more alone may lose what it has acknowledged, without fsync.
        replicas = chance.sample(range(1, brokers + 1), chance.randint(1 if brokers == 2 else 2, min(brokers, 4)))
        self._tell(f"{topic} is reassigned to {replicas}")

        async def reassign(broker: Broker) -> None:
            wanted = [Reassignment(TopicPartition(topic, 0), replicas)]
            await broker.services.controller.reassign_partitions(wanted, allow_replication_factor_change=True)

        await self._administer(reassign)

    async def elect_preferred(self) -> None:
        """The preferred replicas lead again."""
        partitions = [TopicPartition(topic, 0) for topic in (TOPIC, OUTPUT_TOPIC)]
        self._tell("preferred leaders are elected")

        async def elect(broker: Broker) -> None:
            await broker.services.controller.elect_leaders(ElectionType.PREFERRED, partitions)

        await self._administer(elect)

    async def create_and_delete(self) -> None:
        """A topic comes and goes."""
        name = f"passing-{next(self._names)}"
        self._tell(f"topic {name} is created")

        async def create(broker: Broker) -> None:
            await broker.services.controller_client.create_topics([NewTopic(name=name, num_partitions=2)])

        async def delete(broker: Broker) -> None:
            await broker.services.controller_client.delete_topics([TopicTarget(name)])

        await self._administer(create)
        await self._last()
        self._tell(f"topic {name} is deleted")
        await self._administer(delete)

    async def _administer(self, work: Callable[[Broker], Awaitable[None]]) -> None:
        """Have the controller do ``work``, if there is one; else any broker, which may refuse."""
        machine = self.cluster.controller or self.cluster.any_serving()

        async def try_to(broker: Broker) -> None:
            with suppress(KafkaError, OSError), trio.move_on_after(5.0):
                await work(broker)

        if machine is not None:
            await machine.in_broker(try_to)

    async def delete_records(self) -> None:
        """The first records of a topic are deleted."""
        connection = ClusterConnection(self.world, "deleter", self.cluster)
        offset = self.cluster.chance.choice((-1, 1, 5, 20))
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        self._tell(f"the records of {TOPIC} before {offset} are deleted")
        with suppress(ConnectionLost):
            await connection.ask(
                DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=1000),
                2,
            )


FAULTS: dict[str, Fault] = {
    each.__name__: each
    for each in (
        ClusterFaults.kill,
        ClusterFaults.kill_several,
        ClusterFaults.cut_power,
        ClusterFaults.cut_power_of_several,
        ClusterFaults.stop_cleanly,
        ClusterFaults.pause,
        ClusterFaults.isolate,
        ClusterFaults.isolate_with_etcd,
        ClusterFaults.cut_two,
        ClusterFaults.cut_one_way,
        ClusterFaults.cut_clients,
        ClusterFaults.cut_etcd,
        ClusterFaults.slow_links,
        ClusterFaults.slow_disk,
        ClusterFaults.fill_disk,
        ClusterFaults.lose_disk,
        ClusterFaults.start_without_disk,
        ClusterFaults.move_replica,
        ClusterFaults.lose_etcd_leader,
        ClusterFaults.stop_etcd,
        ClusterFaults.pause_etcd,
        ClusterFaults.compact_etcd,
        ClusterFaults.reassign,
        ClusterFaults.elect_preferred,
        ClusterFaults.create_and_delete,
        ClusterFaults.delete_records,
    )
}
"""By their names, of which each seed draws some."""
