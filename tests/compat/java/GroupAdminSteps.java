import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;

/** Groups as the Java Admin client sees and changes them. Argument: the bootstrap servers. */
public final class GroupAdminSteps {
    private static final String TOPIC = "java-groups";
    private static final TopicPartition FIRST = new TopicPartition(TOPIC, 0);
    private static final TopicPartition SECOND = new TopicPartition(TOPIC, 1);
    private static final String CLASSIC = "java-classic";
    private static final String MODERN = "java-modern";
    private static final String SIMPLE = "java-simple";
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    private static String servers;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", servers));
        admin.createTopics(List.of(new NewTopic(TOPIC, 2, (short) 1))).all().get();
        aClassicGroup();
        aConsumerGroup();
        aSimpleGroup();
        for (String protocol : List.of("eager", "sessioned")) {
            Steps.step("connect " + protocol, () -> connect(protocol));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    // A group of the classic protocol, with a static and a dynamic member

    private static void aClassicGroup() throws Exception {
        KafkaConsumer<String, String> fixed = member(CLASSIC, "classic", "group.instance.id", "fixed");
        KafkaConsumer<String, String> loose = member(CLASSIC, "classic");
        Steps.step("share", () -> {
            waitFor(() -> owned(fixed) == 1 & owned(loose) == 1);
            fixed.commitSync(Map.of(FIRST, new OffsetAndMetadata(3, "by hand"), SECOND, new OffsetAndMetadata(4)));
            return true;
        });
        Steps.step("list classic", () -> listed(CLASSIC, new ListGroupsOptions()));
        Steps.step("list by type", () -> listed(CLASSIC, new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))));
        Steps.step("list by another type",
            () -> listed(CLASSIC, new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))));
        Steps.step("list by state",
            () -> listed(CLASSIC, new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))));
        Steps.step("list by another state",
            () -> listed(CLASSIC, new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))));
        Steps.step("describe classic", () -> described(CLASSIC));
        Steps.step("offsets", () -> offsets(CLASSIC, null));
        Steps.step("some offsets", () -> offsets(CLASSIC, List.of(SECOND, new TopicPartition(TOPIC, 7))));
        Steps.step("alter while there are members", () -> alter(CLASSIC, 1));
        Steps.step("delete while there are members", () -> admin.deleteConsumerGroups(List.of(CLASSIC)).all().get());
        Steps.step("delete offsets of what is subscribed to", () -> deleteOffsets(CLASSIC, FIRST));
        fixed.close();    // a static member does not leave
        Steps.step("remove a static member", () -> {
            remove(new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("fixed"))));
            waitFor(() -> owned(loose) == 2);
            return described(CLASSIC);
        });
        Steps.step("remove a member that is not there",
            () -> remove(new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("nobody")))));
        Steps.step("remove everybody", () -> {
            remove(new RemoveMembersFromConsumerGroupOptions());
            return described(CLASSIC);
        });
        Steps.step("a removed member comes back", () -> {
            waitFor(() -> owned(loose) == 2 && stateOf(CLASSIC) == GroupState.STABLE);
            return true;
        });
        loose.close();
        Steps.step("alter", () -> {
            alter(CLASSIC, 1);
            return offsets(CLASSIC, null);
        });
        Steps.step("delete offsets", () -> {
            deleteOffsets(CLASSIC, FIRST);
            return offsets(CLASSIC, null);
        });
        Steps.step("delete", () -> {
            admin.deleteConsumerGroups(List.of(CLASSIC)).all().get();
            return listed(CLASSIC, new ListGroupsOptions());
        });
        Steps.step("delete again", () -> admin.deleteConsumerGroups(List.of(CLASSIC)).all().get());
        Steps.step("describe nothing", () -> described(CLASSIC));
        Steps.step("offsets of nothing", () -> offsets(CLASSIC, null));
    }

    private static Object remove(RemoveMembersFromConsumerGroupOptions options) throws Exception {
        return admin.removeMembersFromConsumerGroup(CLASSIC, options).all().get();
    }

    // A group of the protocol of KIP-848

    private static void aConsumerGroup() throws Exception {
        KafkaConsumer<String, String> fixed = member(MODERN, "consumer", "group.instance.id", "fixed");
        KafkaConsumer<String, String> loose = member(MODERN, "consumer");
        Steps.step("share as consumers", () -> {
            waitFor(() -> owned(fixed) == 1 & owned(loose) == 1);
            loose.commitSync(Map.of(FIRST, new OffsetAndMetadata(3)));
            return true;
        });
        Steps.step("list consumers", () -> listed(MODERN, new ListGroupsOptions()));
        Steps.step("describe consumers", () -> described(MODERN));
        Steps.step("alter while there are consumers", () -> alter(MODERN, 1));
        Steps.step("delete while there are consumers", () -> admin.deleteConsumerGroups(List.of(MODERN)).all().get());
        Steps.step("delete offsets of what consumers are subscribed to", () -> deleteOffsets(MODERN, FIRST));
        fixed.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        loose.close();
        Steps.step("describe a consumer group without members", () -> described(MODERN));
        Steps.step("alter offsets of a consumer group", () -> {
            alter(MODERN, 1);
            return offsets(MODERN, null);
        });
        Steps.step("delete offsets of a consumer group", () -> {
            deleteOffsets(MODERN, FIRST);
            return offsets(MODERN, null);
        });
        Steps.step("delete a consumer group", () -> {
            admin.deleteConsumerGroups(List.of(MODERN)).all().get();
            return listed(MODERN, new ListGroupsOptions());
        });
    }

    // Offsets without any member

    private static void aSimpleGroup() {
        Steps.step("alter offsets of no group", () -> {
            alter(SIMPLE, 5);
            return offsets(SIMPLE, null);
        });
        Steps.step("list simple", () -> listed(SIMPLE, new ListGroupsOptions()));
        Steps.step("describe simple", () -> described(SIMPLE));
    }

    // Connect's workers, whose protocol type is not "consumer"

    private static Object connect(String protocol) throws Exception {
        String group = "connect-" + protocol;
        ConnectWorker one = new ConnectWorker(servers, group, protocol, "http://one/");
        waitFor(() -> one.work().equals(ConnectWorker.EVERYTHING));
        ConnectWorker two = new ConnectWorker(servers, group, protocol, "http://two/");
        waitFor(() -> shared(one.work(), two.work()));
        ClassicGroupDescription described = admin.describeClassicGroups(List.of(group)).all().get().get(group);
        Object seen = Steps.facts(
            "listed", listed(group, new ListGroupsOptions()),
            "consumers", listed(group, ListGroupsOptions.forConsumerGroups()),
            "protocol", described.protocol(),
            "data", described.protocolData(),
            "members", described.members().size());
        two.stop();
        waitFor(() -> one.work().equals(ConnectWorker.EVERYTHING));
        one.stop();
        return seen;
    }

    private static boolean shared(Set<String> one, Set<String> two) {
        Set<String> both = new TreeSet<>(one);
        both.addAll(two);
        return both.equals(ConnectWorker.EVERYTHING) && one.size() + two.size() == both.size() && !two.isEmpty();
    }

    // What the steps share

    private static KafkaConsumer<String, String> member(String group, String protocol, String... settings) {
        Map<String, Object> configs = new HashMap<>(Map.of(
            "bootstrap.servers", servers,
            "group.id", group,
            "group.protocol", protocol,
            "client.id", "member",
            "fetch.max.wait.ms", 100,    // closing waits for the fetch under way
            "enable.auto.commit", false));
        if (protocol.equals("classic")) {
            configs.put("heartbeat.interval.ms", 300);
        }
        for (int at = 0; at < settings.length; at += 2) {
            configs.put(settings[at], settings[at + 1]);
        }
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(TOPIC));
        return consumer;
    }

    private static int owned(KafkaConsumer<String, String> consumer) {
        consumer.poll(POLL);
        return consumer.assignment().size();
    }

    private static void waitFor(BooleanSupplier condition) throws Exception {
        long end = System.nanoTime() + TIMEOUT.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new TimeoutException("waited in vain");
            }
            Thread.sleep(10);
        }
    }

    private static Object listed(String group, ListGroupsOptions options) throws Exception {
        return admin.listGroups(options).all().get().stream().filter(one -> one.groupId().equals(group))
            .map(one -> Steps.facts(
                "type", one.type().map(Object::toString).orElse(null),
                "protocol", one.protocol(),
                "state", one.groupState().map(Object::toString).orElse(null),
                "simple", one.isSimpleConsumerGroup()))
            .findFirst().orElse(null);
    }

    private static GroupState stateOf(String group) {
        try {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object described(String group) throws Exception {
        ConsumerGroupDescription seen = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        return Steps.facts(
            "type", seen.type().toString(),
            "state", seen.groupState().toString(),
            "simple", seen.isSimpleConsumerGroup(),
            "assignor", seen.partitionAssignor(),
            "coordinator", seen.coordinator().id(),
            "epochs", seen.groupEpoch().isPresent() && seen.groupEpoch().equals(seen.targetAssignmentEpoch()),
            "members", seen.members().stream()
                .collect(Collectors.toMap(one -> one.groupInstanceId().orElse("-"), GroupAdminSteps::describedMember)));
    }

    private static Object describedMember(MemberDescription member) {
        return Steps.facts(
            "client", member.clientId(),
            "host", member.host(),
            "partitions", member.assignment().topicPartitions().size(),
            "target", member.targetAssignment().map(target -> target.equals(member.assignment())).orElse(null),
            "epoch", member.memberEpoch().isPresent(),
            "upgraded", member.upgraded().orElse(null));
    }

    private static Object offsets(String group, List<TopicPartition> wanted) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(
            Map.of(group, new ListConsumerGroupOffsetsSpec().topicPartitions(wanted))).all().get().get(group);
        Map<String, Object> results = new TreeMap<>();
        found.forEach((place, offset) -> results.put(
            String.valueOf(place.partition()), offset == null ? null : List.of(offset.offset(), offset.metadata())));
        return results;
    }

    private static Object alter(String group, long offset) throws Exception {
        return admin.alterConsumerGroupOffsets(group, Map.of(FIRST, new OffsetAndMetadata(offset, "altered"))).all().get();
    }

    private static Object deleteOffsets(String group, TopicPartition place) throws Exception {
        return admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
    }
}
