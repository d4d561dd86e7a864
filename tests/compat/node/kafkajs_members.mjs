// kafkajs in groups; see member_host.mjs. It has no static members, and assigns round robin.
import kafkajs from "kafkajs";
import { installCodecs } from "./kafkajs_codecs.mjs";
import { host } from "./member_host.mjs";

installCodecs();

class KafkajsMember {
  constructor({ servers, group, topics, settings }, teller) {
    this.teller = teller;
    this.group = group;
    this.topics = topics;
    this.settings = settings;
    this.next = new Map();
    const retry = { initialRetryTime: 100, maxRetryTime: 500, retries: 1000 };
    this.kafka = new kafkajs.Kafka({ clientId: "compat", brokers: [servers], logLevel: kafkajs.logLevel.NOTHING, retry });
  }

  async join() {
    const { session_ms, heartbeat_ms, metadata_age_ms, auto_commit_ms } = this.settings;
    this.consumer = this.kafka.consumer({
      groupId: this.group,
      sessionTimeout: session_ms,
      heartbeatInterval: heartbeat_ms,
      metadataMaxAge: metadata_age_ms,
      maxWaitTimeInMs: 100,
      allowAutoTopicCreation: false,
    });
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events;
    this.consumer.on(REBALANCING, () => this.teller.owned([]));
    this.consumer.on(GROUP_JOIN, ({ payload }) => this.teller.owned(
      Object.entries(payload.memberAssignment).flatMap(([topic, its]) => its.map((partition) => [topic, partition]))));
    this.consumer.on(CRASH, ({ payload }) => { if (!payload.restart) this.teller.failed(payload.error); });
    await this.consumer.connect();
    const topics = this.topics.map((topic) => topic.startsWith("^") ? new RegExp(topic) : topic);
    await this.consumer.subscribe({ topics, fromBeginning: true });
    await this.consumer.run({
      autoCommit: auto_commit_ms !== null,
      autoCommitInterval: auto_commit_ms,
      eachBatch: async ({ batch: { topic, partition, messages } }) => {
        this.teller.received(messages.map(({ offset, value }) => [topic, partition, Number(offset), value.toString()]));
        const next = Number(messages.at(-1).offset) + 1;
        this.next.set(`${topic} ${partition}`, [topic, partition, next, null]);
      },
    });
    this.admin = this.kafka.admin();
    await this.admin.connect();
  }

  async leave() {
    await this.admin.disconnect();
    await this.consumer.disconnect();
  }

  commit({ offsets }) {
    return this.consumer.commitOffsets((offsets ?? [...this.next.values()]).map(
      ([topic, partition, offset, metadata]) => ({ topic, partition, offset: String(offset), metadata })));
  }

  commit_soon(asked) {
    return this.commit(asked);
  }

  async committed({ place: [topic, partition] }) {
    const [{ partitions }] = await this.admin.fetchOffsets({ groupId: this.group, topics: [topic] });
    const offset = Number(partitions.find((each) => each.partition === partition).offset);
    return offset < 0 ? null : offset;
  }

  seek({ place: [topic, partition], offset }) {
    this.consumer.seek({ topic, partition, offset: String(offset) });
  }

  pause({ place: [topic, partition] }) {
    this.consumer.pause([{ topic, partitions: [partition] }]);
  }

  resume({ place: [topic, partition] }) {
    this.consumer.resume([{ topic, partitions: [partition] }]);
  }

  async end_offset({ place: [topic, partition] }) {
    const ends = await this.admin.fetchTopicOffsets(topic);
    return Number(ends.find((each) => each.partition === partition).high);
  }
}

await host(KafkajsMember);
