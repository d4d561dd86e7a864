// kafkajs: transactions of values and offsets, each third one aborted, then a producer that another has fenced.
// Arguments: the servers, the topic written, the topic whose offsets are committed, the group. Prints one JSON line.
const { Kafka, logLevel } = require("kafkajs");

async function main(servers, topic, source, groupId) {
  const kafka = new Kafka({ clientId: "compat", brokers: [servers], logLevel: logLevel.NOTHING });
  const settings = { transactionalId: groupId, maxInFlightRequests: 1, idempotent: true };
  const producer = kafka.producer(settings);
  await producer.connect();
  for (let number = 0; number < 6; number += 1) {
    const transaction = await producer.transaction();
    const messages = [0, 1].map((partition) => ({ partition, value: `value ${number}` }));
    await transaction.send({ topic, messages });
    const offset = String(number + 1);
    const topics = [{ topic: source, partitions: [{ partition: 0, offset }] }];
    await transaction.sendOffsets({ consumerGroupId: groupId, topics });
    await (number % 3 === 2 ? transaction.abort() : transaction.commit());
  }

  const zombie = await producer.transaction();
  await zombie.send({ topic, messages: [{ partition: 0, value: "of a zombie" }] });
  const successor = kafka.producer(settings);
  await successor.connect();
  await (await successor.transaction()).abort();
  let refused;
  try {
    await zombie.commit();
    refused = "none";
  } catch (error) {
    refused = error.type;
  }
  await successor.disconnect();
  await producer.disconnect();
  console.log(JSON.stringify({ refused }));
}

main(...process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
