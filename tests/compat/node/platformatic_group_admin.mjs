// @platformatic/kafka's Admin: list, describe, read, alter and delete what a group has. Prints one JSON line.
import "./node_20.mjs";

const { Admin, Consumer } = await import("@platformatic/kafka");

const [servers, groupId, topic] = process.argv.slice(2);
const options = { clientId: "compat", bootstrapBrokers: [servers], retries: 0 };
const admin = new Admin(options);
const consumer = new Consumer({ ...options, groupId });
await consumer.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: false });

const deepest = (error) => error.errors?.length ? deepest(error.errors[0]) : error.cause ? deepest(error.cause) : error;
const refusal = (action) => action.then(() => null, (error) => deepest(error).apiId ?? String(error));
const offsets = async () => {
  const [group] = await admin.listConsumerGroupOffsets({ groups: [groupId] });
  return group.topics.flatMap(({ partitions }) =>
    partitions.map(({ partitionIndex, committedOffset }) => [partitionIndex, Number(committedOffset)]));
};
const alter = (offset) => admin.alterConsumerGroupOffsets({
  groupId, topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset: BigInt(offset) }] }],
});

const listed = (await admin.listGroups()).get(groupId);
const described = (await admin.describeGroups({ groups: [groupId] })).get(groupId);
const [member] = described.members.values();
const tooEarly = await refusal(admin.deleteGroups({ groups: [groupId] }));
await consumer.close(true);
await alter(3);
const altered = await offsets();
await admin.deleteConsumerGroupOffsets({ groupId, topics: [{ name: topic, partitionIndexes: [0] }] });
const left = await offsets();
await admin.deleteGroups({ groups: [groupId] });
const gone = !(await admin.listGroups()).has(groupId);
const again = await refusal(admin.deleteGroups({ groups: [groupId] }));
await admin.close();
console.log(JSON.stringify({
  listed: { state: listed.state, type: listed.groupType, protocol: listed.protocolType },
  state: described.state,
  assigned: member.assignments.get(topic).partitions,
  tooEarly, altered, left, gone, again,
}));
