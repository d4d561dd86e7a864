// kafkajs by TLS and logins: see secured_clients.py. Reads cases, and prints how writing and reading ended in each.
import fs from "node:fs";
import kafkajs from "kafkajs";

const { Kafka, logLevel } = kafkajs;

function client({ servers, ca, certificate, mechanism, user, password, token }) {
  const pem = certificate && fs.readFileSync(certificate);
  const credentials = mechanism === "OAUTHBEARER"
    ? { oauthBearerProvider: async () => ({ value: token }) }
    : { username: user, password };
  return new Kafka({
    clientId: "compat",
    brokers: [servers],
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
    ssl: { ca: [fs.readFileSync(ca)], ...(pem ? { cert: pem, key: pem } : {}) },
    ...(mechanism ? { sasl: { mechanism: mechanism.toLowerCase(), ...credentials } } : {}),
  });
}

// The innermost error has the code of TLS or the type of the protocol's error.
function name(error) {
  return error.cause ? name(error.cause) : error.type ?? (isNaN(error.code) ? error.code : undefined) ?? error.name;
}

async function outcome(action) {
  try {
    await action();
    return "ok";
  } catch (error) {
    return name(error);
  }
}

async function write(one) {
  const producer = client(one).producer({ allowAutoTopicCreation: false });
  await producer.connect();
  try {
    await producer.send({ topic: one.topic, messages: [{ value: "x" }] });
  } finally {
    await producer.disconnect();
  }
}

async function read(one) {
  const consumer = client(one).consumer({ groupId: one.group, maxWaitTimeInMs: 100, allowAutoTopicCreation: false });
  try {
    await consumer.connect();
    await consumer.subscribe({ topics: [one.topic], fromBeginning: true });
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      consumer.run({ eachMessage: async () => resolve() }).catch(reject);
    });
  } finally {
    await consumer.disconnect();
  }
}

const outcomes = {};
for (const one of JSON.parse(fs.readFileSync(0))) {
  outcomes[one.name] = [await outcome(() => write(one)), await outcome(() => read(one))];
}
console.log(JSON.stringify(outcomes));
process.exit(0);
