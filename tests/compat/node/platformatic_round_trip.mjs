// @platformatic/kafka: create, produce (also idempotent), list offsets, delete. Prints one JSON line.
import "./node_20.mjs";

const { Admin, Producer, ListOffsetTimestamps, Consumer, stringSerializers } = await import("@platformatic/kafka");

const [servers, topic] = process.argv.slice(2);
const options = { clientId: "compat", bootstrapBrokers: [servers] };

const admin = new Admin(options);
await admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 });
const producer = new Producer({ ...options, serializers: stringSerializers });
const messages = Array.from({ length: 50 }, (_, n) => ({ topic, key: `k${n}`, value: `value ${n}`, partition: 0 }));
const sent = await producer.send({ messages, acks: -1 });
const idempotent = new Producer({ ...options, serializers: stringSerializers, idempotent: true });
const again = await idempotent.send({ messages });
await producer.close();
await idempotent.close();
const consumer = new Consumer({ ...options, groupId: "not-joined" });
const ends = await consumer.listOffsets({ topics: [topic], timestamp: ListOffsetTimestamps?.LATEST ?? -1n });
await consumer.close();
await admin.deleteTopics({ topics: [topic] });
await admin.close();
console.log(JSON.stringify({
  first: String(sent.offsets[0].offset),
  second: String(again.offsets[0].offset),
  end: String(ends.get(topic)[0]),
}));
