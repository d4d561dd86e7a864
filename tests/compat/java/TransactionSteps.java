import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.io.InputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.stream.Collectors;

/**
 * The Java producer's transactions, of the second protocol where the cluster has it, and what Admin says of them.
 * Argument: the bootstrap servers.
 */
public final class TransactionSteps {
    private static final Duration TIMEOUT = Duration.ofSeconds(2);
    private static final TopicPartition FIRST = new TopicPartition("java-out", 0);

    private static String servers;
    private static Admin admin;

    /** Of the jar that comes first: the class that knows it stands in another package since 4.4. */
    private static String clientVersion() throws Exception {
        Properties properties = new Properties();
        try (InputStream file = TransactionSteps.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", servers));
        admin.createTopics(List.of(new NewTopic("java-in", 1, (short) 1), new NewTopic("java-out", 2, (short) 1)))
                .all().get();
        Steps.step("version", TransactionSteps::clientVersion);
        Steps.step("committed and aborted", TransactionSteps::committedAndAborted);
        Steps.step("fenced", TransactionSteps::fenced);
        Steps.step("offsets", TransactionSteps::offsets);
        Steps.step("described", TransactionSteps::described);
        Steps.step("aborted by an administrator", TransactionSteps::abortedByAnAdministrator);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static KafkaProducer<String, String> producer(String transactionalId) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", transactionalId);
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static List<String> read(String topic, int partition, String isolation) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", servers);
        settings.put("isolation.level", isolation);
        settings.put("fetch.max.wait.ms", 100);    // closing waits for the fetch under way
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition only = new TopicPartition(topic, partition);
            consumer.assign(List.of(only));
            consumer.seekToBeginning(List.of(only));
            long end = consumer.endOffsets(List.of(only)).get(only);
            List<String> values = new ArrayList<>();
            while (consumer.position(only) < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(TIMEOUT)) {
                    values.add(record.value());
                }
            }
            return values;
        }
    }

    private static Object committedAndAborted() throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-one")) {
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    producer.send(new ProducerRecord<>("java-out", partition, null, "record " + number));
                }
                if (number % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        Map<String, Object> seen = new HashMap<>();
        for (int partition = 0; partition < 2; partition++) {
            seen.put("committed " + partition, read("java-out", partition, "read_committed"));
            seen.put("all " + partition, read("java-out", partition, "read_uncommitted").size());
        }
        return seen;
    }

    private static Object fenced() throws Exception {
        KafkaProducer<String, String> zombie = producer("java-fenced");
        zombie.beginTransaction();
        zombie.send(new ProducerRecord<>("java-out", 0, null, "of a zombie")).get();
        String error = "none";
        try (KafkaProducer<String, String> next = producer("java-fenced")) {
            next.beginTransaction();
            next.send(new ProducerRecord<>("java-out", 0, null, "of its successor"));
            next.commitTransaction();
            try {
                Future<?> late = zombie.send(new ProducerRecord<>("java-out", 0, null, "late"));
                zombie.commitTransaction();
                late.get();
            } catch (Exception refused) {
                Throwable cause = refused.getCause() == null ? refused : refused.getCause();
                error = cause.getClass().getSimpleName();
            }
        }
        zombie.close(Duration.ZERO);
        List<String> values = read("java-out", 0, "read_committed");
        return Steps.facts("error", error, "last", values.get(values.size() - 1),
                "zombies", values.stream().filter(value -> value.contains("zombie") || value.equals("late")).count());
    }

    private static Object offsets() throws Exception {
        TopicPartition input = new TopicPartition("java-in", 0);
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("java-group");
        List<Object> seen = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("java-offsets")) {
            for (boolean commits : new boolean[] {true, false}) {
                producer.beginTransaction();
                long offset = commits ? 5 : 9;
                producer.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(offset)), group);
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                seen.add(admin.listConsumerGroupOffsets("java-group").partitionsToOffsetAndMetadata().get()
                        .get(input).offset());
            }
        }
        return seen;
    }

    private static Object described() throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-described")) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("java-out", 1, null, "described")).get();
            TransactionDescription during = admin.describeTransactions(List.of("java-described"))
                    .description("java-described").get();
            List<String> listed = admin.listTransactions().all().get().stream()
                    .map(each -> each.transactionalId() + " " + each.state()).sorted().collect(Collectors.toList());
            List<ProducerState> open = admin.describeProducers(List.of(new TopicPartition("java-out", 1)))
                    .partitionResult(new TopicPartition("java-out", 1)).get().activeProducers().stream()
                    .filter(each -> each.currentTransactionStartOffset().isPresent()).collect(Collectors.toList());
            producer.commitTransaction();
            String after = admin.describeTransactions(List.of("java-described"))
                    .description("java-described").get().state().toString();
            return Steps.facts("state", during.state().toString(), "partitions", during.topicPartitions().toString(),
                    "timeout", during.transactionTimeoutMs(), "listed", listed, "open", open.size(),
                    "same producer", open.get(0).producerId() == during.producerId(), "after", after);
        }
    }

    private static Object abortedByAnAdministrator() throws Exception {
        KafkaProducer<String, String> producer = producer("java-hanging");
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("java-out", 0, null, "hanging")).get();
        ProducerState open = admin.describeProducers(List.of(FIRST)).partitionResult(FIRST).get()
                .activeProducers().stream().filter(each -> each.currentTransactionStartOffset().isPresent())
                .findFirst().get();
        admin.abortTransaction(new AbortTransactionSpec(FIRST, open.producerId(), (short) open.producerEpoch(),
                open.coordinatorEpoch().orElse(0))).all().get();
        boolean isSeen = read("java-out", 0, "read_committed").contains("hanging");
        producer.close(Duration.ZERO);
        return Steps.facts("seen", isSeen);
    }
}
