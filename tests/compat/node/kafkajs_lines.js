// kafkajs: produce every line of standard input, byte for byte, to partition 0. Prints how many as JSON.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const LINES_PER_SEND = 5000;

async function main(servers, topic) {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const input = Buffer.concat(chunks);
  const kafka = new Kafka({ clientId: "compat", brokers: [servers], logLevel: logLevel.ERROR });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  let messages = [];
  let count = 0;
  const send = async () => {
    if (messages.length) await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP, messages });
    count += messages.length;
    messages = [];
  };
  for (let start = 0, end; (end = input.indexOf(10, start)) >= 0; start = end + 1) {
    messages.push({ key: null, value: input.subarray(start, end), partition: 0 });
    if (messages.length === LINES_PER_SEND) await send();
  }
  await send();
  await producer.disconnect();
  console.log(JSON.stringify({ count }));
}

main(...process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
