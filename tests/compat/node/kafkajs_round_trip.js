// kafkajs: create, describe, produce by key and by partition with gzip, read offsets, delete. Prints one JSON line.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

async function main(servers, topic) {
  const kafka = new Kafka({ clientId: "compat", brokers: [servers], logLevel: logLevel.ERROR });
  const admin = kafka.admin();
  await admin.connect();
  const created = await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] });

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const messages = Array.from({ length: 100 }, (_, n) => ({ key: null, value: `value ${n}`, partition: 0 }));
  const [sent] = await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP, messages });
  await producer.send({ topic, messages: [{ key: "k", value: "v", headers: { h: "x" }, partition: 1 }] });
  await producer.disconnect();

  const offsets = await admin.fetchTopicOffsets(topic);
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] });
  const configs = await admin.describeConfigs({ resources: [{ type: 2, name: topic }] });
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
  const grown = await admin.fetchTopicMetadata({ topics: [topic] });
  await admin.disconnect();
  console.log(JSON.stringify({
    created,
    baseOffset: sent.baseOffset,
    high: Object.fromEntries(offsets.map(({ partition, high }) => [partition, high])),
    partitions: metadata.topics[0].partitions.length,
    grown: grown.topics[0].partitions.length,
    retention: configs.resources[0].configEntries.find(({ configName }) => configName === "retention.ms").configValue,
  }));
}

main(...process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
