// @platformatic/kafka: transactions of values and offsets, each third one aborted, then a producer that another has
// fenced. Arguments: the servers, the topic written, the topic whose offsets are committed, the group. Prints one JSON
// line.
import "./node_20.mjs";

const { Consumer, Producer, stringSerializers } = await import("@platformatic/kafka");

const [servers, topic, source, groupId] = process.argv.slice(2);
const options = { clientId: "compat", bootstrapBrokers: [servers], retryDelay: 50 };
const settings = { ...options, serializers: stringSerializers, transactionalId: groupId, idempotent: true };

const consumer = new Consumer({ ...options, groupId });
await consumer.joinGroup();
const producer = new Producer(settings);
for (let number = 0; number < 6; number += 1) {
  const transaction = await producer.beginTransaction();
  await transaction.addConsumer(consumer);
  const messages = [0, 1].map((partition) => ({ topic, partition, value: `value ${number}` }));
  await transaction.send({ messages });
  await transaction.addOffset({ topic: source, partition: 0, offset: BigInt(number), metadata: { consumer } });
  await (number % 3 === 2 ? transaction.abort() : transaction.commit());
}

const zombie = await producer.beginTransaction();
await zombie.send({ messages: [{ topic, partition: 0, value: "of a zombie" }] });
// Without these it asks to go on as producer 0 of epoch 0, which a broker refuses.
const successor = new Producer({ ...settings, producerId: -1n, producerEpoch: -1 });
await successor.beginTransaction();
let refused = "none";
try {
  await zombie.commit();
} catch (error) {
  const names = (each) => [each?.apiId, ...(each?.errors ?? []).flatMap(names), ...(each?.cause ? names(each.cause) : [])];
  refused = names(error).find(Boolean) ?? String(error);
}
console.log(JSON.stringify({ refused }));
process.exit(0);
