// kafkajs: consume so many records of a topic as a group of one, and write each as a line of standard output.
import { once } from "node:events";
import kafkajs from "kafkajs";

const [servers, topic, count] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({ clientId: "compat", brokers: [servers], logLevel: kafkajs.logLevel.ERROR });
const consumer = kafka.consumer({ groupId: `kafkajs-${topic}`, maxWaitTimeInMs: 100 });
await consumer.connect();
await consumer.subscribe({ topics: [topic], fromBeginning: true });
const NEWLINE = Buffer.from("\n");
let left = Number(count);
await new Promise((done, failed) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error));
  consumer.run({
    eachBatch: async ({ batch }) => {
      const lines = Buffer.concat(batch.messages.flatMap(({ value }) => [value, NEWLINE]));
      if (!process.stdout.write(lines)) await once(process.stdout, "drain");
      left -= batch.messages.length;
      if (left <= 0) done();
    },
  });
});
await consumer.disconnect();
