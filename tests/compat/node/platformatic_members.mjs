// @platformatic/kafka in groups, with the classic protocol and that of KIP-848; see member_host.mjs. It commits no
// metadata, and neither seeks nor pauses single partitions.
import "./node_20.mjs";
import { host } from "./member_host.mjs";

const { Consumer, ListOffsetTimestamps } = await import("@platformatic/kafka");

const LOOK_MS = 25;

class PlatformaticMember {
  constructor({ servers, group, topics, settings }, teller) {
    this.teller = teller;
    this.topics = topics;
    this.settings = settings;
    this.next = new Map();
    const { session_ms, heartbeat_ms, metadata_age_ms, instance_id, protocol, strategy } = settings;
    this.consumer = new Consumer({
      clientId: "compat",
      bootstrapBrokers: [servers],
      groupId: group,
      metadataMaxAge: metadata_age_ms,
      retries: 1000,
      retryDelay: 100,
      maxWaitTime: 100,
      ...(instance_id === null ? {} : { groupInstanceId: instance_id }),
      ...(protocol === "consumer" ? { groupProtocol: "consumer" } : {
        sessionTimeout: session_ms,
        rebalanceTimeout: 60_000,
        heartbeatInterval: heartbeat_ms,
        ...(strategy === undefined ? {} : { protocols: [{ name: strategy, version: 3 }] }),
      }),
    });
  }

  async join() {
    // One that is to rejoin while it closes loses the connection, and an error that nobody listens for ends the host.
    this.consumer.on("error", (error) => this.leaving || this.teller.failed(error));
    // Only the classic protocol announces what is assigned.
    this.looking = setInterval(() => this.teller.owned((this.consumer.assignments ?? []).flatMap(
      ({ topic, partitions }) => partitions.map((partition) => [topic, partition]))), LOOK_MS);
    this.stream = await this.consumer.consume({
      topics: this.topics,
      mode: "committed",
      fallbackMode: "earliest",
      autocommit: this.settings.auto_commit_ms ?? false,
    });
    this.stream.on("error", (error) => this.teller.failed(error));
    this.stream.on("data", ({ topic, partition, offset, value }) => {
      this.teller.received([[topic, partition, Number(offset), value.toString()]]);
      this.next.set(`${topic} ${partition}`, [topic, partition, Number(offset) + 1]);
    });
  }

  async leave() {
    clearInterval(this.looking);
    this.leaving = true;
    // First the stream: a consumer that is closing makes no last commit for it (messages-stream.js, [kAutocommit]).
    await this.stream.close();
    await this.consumer.close(true);
  }

  commit({ offsets }) {
    return this.consumer.commit({ offsets: (offsets ?? [...this.next.values()]).map(
      ([topic, partition, offset]) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: 0 })) });
  }

  commit_soon(asked) {
    return this.commit(asked);
  }

  async committed({ place: [topic, partition] }) {
    const found = await this.consumer.listCommittedOffsets({ topics: [{ topic, partitions: [partition] }] });
    const offset = Number(found.get(topic)[partition]);
    return offset < 0 ? null : offset;
  }

  // Of everything at once, whatever the place.
  pause() {
    this.stream.pause();
  }

  resume() {
    this.stream.resume();
  }

  async end_offset({ place: [topic, partition] }) {
    const ends = await this.consumer.listOffsets({ topics: [topic], timestamp: ListOffsetTimestamps.LATEST });
    return Number(ends.get(topic)[partition]);
  }
}

await host(PlatformaticMember);
