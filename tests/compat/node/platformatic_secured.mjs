// @platformatic/kafka by TLS and logins: see secured_clients.py.
import fs from "node:fs";
import { runCases } from "./secured_cases.mjs";
import "./node_20.mjs";

const { Consumer, Producer, stringSerializers, stringDeserializers } = await import("@platformatic/kafka");

function options({ servers, ca, certificate, mechanism, user, password, token }) {
  const pem = certificate && fs.readFileSync(certificate);
  const credentials = mechanism === "OAUTHBEARER" ? { token } : { username: user, password };
  return {
    clientId: "compat",
    bootstrapBrokers: [servers],
    retries: 0,
    tls: { ca: [fs.readFileSync(ca)], ...(pem ? { cert: pem, key: pem } : {}) },
    ...(mechanism ? { sasl: { mechanism, ...credentials } } : {}),
  };
}

// Errors come in several layers; the innermost has the code of the protocol or of TLS.
function name(error) {
  const inner = error.errors?.[0] ?? error.cause;
  return inner ? name(inner) : error.apiId ?? error.code ?? error.message;
}

async function write(one) {
  const producer = new Producer({ ...options(one), serializers: stringSerializers });
  try {
    await producer.send({ messages: [{ topic: one.topic, value: "x" }], acks: -1 });
  } finally {
    await producer.close();
  }
}

async function read(one) {
  const consumer = new Consumer({ ...options(one), groupId: one.group, maxWaitTime: 100, deserializers: stringDeserializers });
  try {
    const stream = await consumer.consume({ topics: [one.topic], mode: "committed", fallbackMode: "earliest" });
    for await (const _ of stream) break;
  } finally {
    await consumer.close(true).catch(() => {}); // one that never joined cannot leave
  }
}

await runCases(write, read, name);
