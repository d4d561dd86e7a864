import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

/** The Java Admin client, by which most tools and user interfaces manage a cluster. Argument: the bootstrap servers. */
public final class AdminSteps {
    private static final String TOPIC = "java-admin";
    private static final TopicPartition FIRST = new TopicPartition(TOPIC, 0);
    private static final ConfigResource TOPIC_CONFIG = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
    private static final long FIRST_TIMESTAMP_MS = 1_700_000_000_000L;

    private static Admin admin;
    private static ConfigResource brokerConfig;

    public static void main(String[] arguments) throws Exception {
        admin = Admin.create(Map.of("bootstrap.servers", arguments[0]));
        Steps.step("describe cluster", AdminSteps::describeCluster);
        Steps.step("create", AdminSteps::create);
        Steps.step("create again", () -> createOne(new NewTopic(TOPIC, 1, (short) 1)));
        Steps.step("create with too many replicas", () -> createOne(new NewTopic("java-bad", 1, (short) 3)));
        Steps.step("create with a bad value",
            () -> createOne(new NewTopic("java-bad", 1, (short) 1).configs(Map.of("retention.ms", "soon"))));
        Steps.step("create with an unknown key",
            () -> createOne(new NewTopic("java-bad", 1, (short) 1).configs(Map.of("no.such.key", "1"))));
        Steps.step("create with a bad name", () -> createOne(new NewTopic("a/b", 1, (short) 1)));
        Steps.step("create without partitions", () -> createOne(new NewTopic("java-bad", 0, (short) 1)));
        Steps.step("create but only validate", () -> admin.createTopics(
            List.of(new NewTopic("java-imagined", 1, (short) 1)), new CreateTopicsOptions().validateOnly(true)).all().get());
        Steps.step("describe", () -> describe(TOPIC));
        Steps.step("describe by id", AdminSteps::describeById);
        Steps.step("describe nothing", () -> describe("java-nowhere"));
        Steps.step("list", AdminSteps::list);
        Steps.step("describe topic configs", AdminSteps::describeTopicConfigs);
        Steps.step("alter topic configs", AdminSteps::alterTopicConfigs);
        Steps.step("alter to a bad value", () -> alter(TOPIC_CONFIG, Map.of("retention.ms", "soon"), false));
        Steps.step("describe broker configs", AdminSteps::describeBrokerConfigs);
        Steps.step("alter broker configs", AdminSteps::alterBrokerConfigs);
        Steps.step("alter a read-only key", () -> alter(brokerConfig, Map.of("log.dirs", "/elsewhere"), false));
        Steps.step("validate a broker change", () -> alter(brokerConfig, Map.of("num.io.threads", "7"), true));
        Steps.step("create partitions", AdminSteps::createPartitions);
        Steps.step("create fewer partitions",
            () -> admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(2))).all().get());
        fill(arguments[0]);
        Steps.step("list offsets", AdminSteps::listOffsets);
        Steps.step("delete records", AdminSteps::deleteRecords);
        Steps.step("delete records past the end",
            () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(1000))).all().get());
        Steps.step("delete", AdminSteps::delete);
        Steps.step("delete again", () -> admin.deleteTopics(List.of(TOPIC)).all().get());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Object describeCluster() throws Exception {
        DescribeClusterResult result = admin.describeCluster();
        brokerConfig = new ConfigResource(ConfigResource.Type.BROKER, result.controller().get().idString());
        return Steps.facts("nodes", result.nodes().get().size(), "cluster", result.clusterId().get(),
            "controller", result.controller().get().id(), "port", result.nodes().get().iterator().next().port());
    }

    private static Object create() throws Exception {
        CreateTopicsResult result = admin.createTopics(
            List.of(new NewTopic(TOPIC, 3, (short) 1).configs(Map.of("retention.ms", "3600000"))));
        return Steps.facts("partitions", result.numPartitions(TOPIC).get(), "replicas", result.replicationFactor(TOPIC).get(),
            "id", !result.topicId(TOPIC).get().equals(Uuid.ZERO_UUID),
            "retention", result.config(TOPIC).get().get("retention.ms").value());
    }

    private static Object createOne(NewTopic topic) throws Exception {
        return admin.createTopics(List.of(topic)).all().get();
    }

    private static Object describe(String topic) throws Exception {
        TopicDescription result = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        return Steps.facts("name", result.name(), "internal", result.isInternal(), "partitions",
            result.partitions().stream().map(partition -> Steps.facts("partition", partition.partition(),
                "leader", partition.leader().id(), "replicas", partition.replicas().size(),
                "isr", partition.isr().size())).collect(Collectors.toList()));
    }

    private static Object describeById() throws Exception {
        Uuid id = admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).topicId();
        return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name();
    }

    private static Object list() throws Exception {
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        return new TreeSet<>(names);
    }

    private static Config configs(ConfigResource resource, boolean everything) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions()
            .includeSynonyms(everything).includeDocumentation(everything);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
    }

    private static Object entry(ConfigEntry entry) {
        return Steps.facts("value", entry.value(), "source", entry.source().toString(), "default", entry.isDefault(),
            "readOnly", entry.isReadOnly(), "sensitive", entry.isSensitive(), "type", entry.type().toString(),
            "documented", entry.documentation() != null && !entry.documentation().isEmpty(),
            "synonyms", entry.synonyms().stream()
                .map(synonym -> synonym.name() + "=" + synonym.value()).collect(Collectors.toList()));
    }

    private static Object describeTopicConfigs() throws Exception {
        Config result = configs(TOPIC_CONFIG, true);
        return Steps.facts("retention.ms", entry(result.get("retention.ms")),
            "segment.bytes", entry(result.get("segment.bytes")), "cleanup.policy", entry(result.get("cleanup.policy")),
            "count", result.entries().size());
    }

    private static Object alter(ConfigResource resource, Map<String, String> values, boolean validateOnly)
        throws Exception {
        List<AlterConfigOp> changes = values.entrySet().stream()
            .map(pair -> new AlterConfigOp(new ConfigEntry(pair.getKey(), pair.getValue()),
                pair.getValue() == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET))
            .collect(Collectors.toList());
        return admin.incrementalAlterConfigs(Map.of(resource, changes),
            new AlterConfigsOptions().validateOnly(validateOnly)).all().get();
    }

    private static Object alterTopicConfigs() throws Exception {
        alter(TOPIC_CONFIG, Map.of("segment.ms", "600000"), false);
        List<AlterConfigOp> append = List.of(
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND),
            new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE));
        admin.incrementalAlterConfigs(Map.of(TOPIC_CONFIG, append)).all().get();
        Config result = configs(TOPIC_CONFIG, false);
        return Steps.facts("segment.ms", result.get("segment.ms").value(),
            "cleanup.policy", result.get("cleanup.policy").value(), "retention.ms", result.get("retention.ms").value(),
            "source", result.get("retention.ms").source().toString());
    }

    private static Object describeBrokerConfigs() throws Exception {
        Config result = configs(brokerConfig, true);
        return Steps.facts("num.io.threads", entry(result.get("num.io.threads")),
            "log.dirs", entry(result.get("log.dirs")), "count", result.entries().size());
    }

    private static Object alterBrokerConfigs() throws Exception {
        alter(brokerConfig, Map.of("num.io.threads", "5"), false);
        return entry(configs(brokerConfig, false).get("num.io.threads"));
    }

    private static Object createPartitions() throws Exception {
        admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(5))).all().get();
        return admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).partitions().size();
    }

    private static void fill(String servers) throws Exception {
        long[] ages = {0, 5000, 9000, 3000, 4000};    // the newest record is the third
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", servers), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long age : ages) {
                producer.send(new ProducerRecord<>(TOPIC, 0, FIRST_TIMESTAMP_MS + age, new byte[1], new byte[10])).get();
            }
            Steps.step("send without a key to a compacted topic",
                () -> producer.send(new ProducerRecord<>(TOPIC, 0, null, new byte[1])).get().offset());
        }
    }

    private static Object listOffsets() throws Exception {
        Map<String, Object> results = new TreeMap<>();
        Map<String, OffsetSpec> questions = Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
            "max timestamp", OffsetSpec.maxTimestamp(), "by time", OffsetSpec.forTimestamp(FIRST_TIMESTAMP_MS + 1),
            "after all", OffsetSpec.forTimestamp(FIRST_TIMESTAMP_MS + 99_000),
            "earliest local", OffsetSpec.earliestLocal(), "latest tiered", OffsetSpec.latestTiered());
        for (Map.Entry<String, OffsetSpec> question : questions.entrySet()) {
            ListOffsetsResultInfo info = admin.listOffsets(Map.of(FIRST, question.getValue())).partitionResult(FIRST).get();
            results.put(question.getKey(), List.of(info.offset(), info.timestamp(), info.leaderEpoch().orElse(-1)));
        }
        return results;
    }

    private static Object deleteRecords() throws Exception {
        long low = admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(2)))
            .lowWatermarks().get(FIRST).get().lowWatermark();
        long earliest = admin.listOffsets(Map.of(FIRST, OffsetSpec.earliest())).partitionResult(FIRST).get().offset();
        return List.of(low, earliest);
    }

    private static Object delete() throws Exception {
        admin.deleteTopics(List.of(TOPIC)).all().get();
        return admin.listTopics().names().get().contains(TOPIC);
    }
}
