// kafkajs by TLS and logins: see secured_clients.py.
import fs from "node:fs";
import { runCases } from "./secured_cases.mjs";
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

await runCases(write, read, name);
