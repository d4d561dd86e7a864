// kafkajs's admin: list, describe, read what was committed, delete. Prints one JSON line.
import kafkajs from "kafkajs";

const [servers, groupId, topic] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({ clientId: "compat", brokers: [servers], logLevel: kafkajs.logLevel.NOTHING });
const admin = kafka.admin();
await admin.connect();
const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100 });
await consumer.connect();
await consumer.subscribe({ topics: [topic], fromBeginning: true });
const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
await consumer.run({ autoCommit: false, eachMessage: async () => {} });
await joined;

const mine = ({ groups }) => groups.find((group) => group.groupId === groupId);
const offsets = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions;
const refusal = (action) => action.then(() => null, (error) => error.groups?.[0].error.type ?? error.type);

const listed = mine(await admin.listGroups());
const { state, protocolType, protocol, members } = mine(await admin.describeGroups([groupId]));
const [assigned] = members.map(({ memberAssignment }) =>
  kafkajs.AssignerProtocol.MemberAssignment.decode(memberAssignment).assignment[topic]);
const tooEarly = await refusal(admin.deleteGroups([groupId]));
await consumer.commitOffsets([{ topic, partition: 0, offset: "3", metadata: "by hand" }]);
await consumer.disconnect();
const committed = await offsets();
await admin.deleteGroups([groupId]);
const gone = mine(await admin.listGroups()) === undefined;
const again = await refusal(admin.deleteGroups([groupId]));
await admin.disconnect();
console.log(JSON.stringify({ listed, state, protocolType, protocol, assigned, tooEarly, committed, gone, again }));
