import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;

/**
 * The Java producer and consumer, without groups: what every program on the JVM, Spark included, does with a broker.
 * Arguments: the bootstrap servers, and a topic that another client has filled.
 */
public final class ClientSteps {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final int RECORDS_OF_A_CODEC = 500;
    private static final int KEYS = 200;
    private static final long FIRST_TIMESTAMP_MS = 1_700_000_000_000L;
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    private static String servers;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", servers));
        Steps.step("read foreign", () -> readForeign(arguments[1]));
        Steps.step("codecs", ClientSteps::codecs);
        Steps.step("odd records", ClientSteps::oddRecords);
        Steps.step("megabyte", ClientSteps::megabyte);
        Steps.step("too large", ClientSteps::tooLarge);
        Steps.step("bad records", ClientSteps::badRecords);
        Steps.step("keys", ClientSteps::keys);
        Steps.step("acks", ClientSteps::acks);
        Steps.step("append time", ClientSteps::appendTime);
        fillTimes();
        Steps.step("offset lookups", ClientSteps::offsetLookups);
        Steps.step("seek", ClientSteps::seek);
        Steps.step("seek past the end", ClientSteps::seekPastTheEnd);
        Steps.step("a session that changes", ClientSteps::sessionThatChanges);
        Steps.step("recreated topic", ClientSteps::recreatedTopic);
        Steps.step("auto create", ClientSteps::autoCreate);
        Steps.step("unknown topic", ClientSteps::unknownTopic);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void create(String topic, int partitions, String... configs) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int at = 0; at < configs.length; at += 2) {
            settings.put(configs[at], configs[at + 1]);
        }
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(settings))).all().get();
    }

    private static KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Map<String, Object> all = new HashMap<>(Steps.facts(settings));
        all.put("bootstrap.servers", servers);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Object... settings) {
        Map<String, Object> all = new HashMap<>(Steps.facts(settings));
        all.put("bootstrap.servers", servers);
        all.putIfAbsent("auto.offset.reset", "none");
        all.put("fetch.max.wait.ms", 100);    // closing waits for the fetch under way
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long end = System.nanoTime() + TIMEOUT.toNanos();
        while (found.size() < count && System.nanoTime() < end) {
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        }
        return found;
    }

    private static List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int partitions, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("isolation.level", "read_committed")) {
            List<TopicPartition> assigned = partitionsOf(topic, partitions);
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            return read(consumer, count);
        }
    }

    private static List<TopicPartition> partitionsOf(String topic, int count) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < count; partition++) {
            partitions.add(new TopicPartition(topic, partition));
        }
        return partitions;
    }

    private static List<RecordMetadata> sendAll(KafkaProducer<byte[], byte[]> producer,
                                                List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        records.forEach(record -> sent.add(producer.send(record)));
        producer.flush();
        List<RecordMetadata> results = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            results.add(one.get());
        }
        return results;
    }

    private static ProducerRecord<byte[], byte[]> value(String topic, int partition, String value) {
        return new ProducerRecord<>(topic, partition, null, bytes(value));
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] data) {
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    private static List<String> values(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(record -> text(record.value())).collect(Collectors.toList());
    }

    private static List<Long> offsets(List<RecordMetadata> sent) {
        return sent.stream().map(RecordMetadata::offset).collect(Collectors.toList());
    }

    private static String digest(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    private static Object readForeign(String topic) {
        List<ConsumerRecord<byte[], byte[]>> found = readAll(topic, CODECS.size(), CODECS.size() * RECORDS_OF_A_CODEC);
        Map<String, List<String>> partitions = new TreeMap<>();
        found.forEach(record -> partitions
            .computeIfAbsent(String.valueOf(record.partition()), partition -> new ArrayList<>())
            .add(text(record.value())));
        return partitions;
    }

    private static Object codecs() throws Exception {
        create("java-codecs", CODECS.size());
        Map<String, Object> results = new LinkedHashMap<>();
        for (int partition = 0; partition < CODECS.size(); partition++) {
            try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", CODECS.get(partition))) {
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (int number = 0; number < RECORDS_OF_A_CODEC; number++) {
                    records.add(value("java-codecs", partition, ("line " + number + " ").repeat(20)));
                }
                results.put(CODECS.get(partition), offsets(sendAll(producer, records)));
            }
        }
        return results;
    }

    private static Object oddRecords() throws Exception {
        create("java-odd", 1);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            List<Header> headers = List.of(new RecordHeader("h", bytes("1")), new RecordHeader("h", bytes("2")),
                new RecordHeader("null", (byte[]) null), new RecordHeader("ключ", bytes("值")));
            sendAll(producer, List.of(
                new ProducerRecord<>("java-odd", 0, bytes("tombstone"), null),
                new ProducerRecord<>("java-odd", 0, FIRST_TIMESTAMP_MS + 123, null, bytes("value"), headers),
                new ProducerRecord<>("java-odd", 0, null, null),
                new ProducerRecord<>("java-odd", 0, bytes(""), bytes(""))));
        }
        return readAll("java-odd", 1, 4).stream().map(record -> Steps.facts("offset", record.offset(),
            "key", text(record.key()), "value", text(record.value()), "timestamp", record.timestamp(),
            "headers", Arrays.stream(record.headers().toArray())
                .map(header -> Arrays.asList(header.key(), text(header.value()))).collect(Collectors.toList())
        )).collect(Collectors.toList());
    }

    private static Object megabyte() throws Exception {
        create("java-megabyte", 1);
        byte[] data = new byte[1_000_000];
        new Random(7).nextBytes(data);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            sendAll(producer, List.of(new ProducerRecord<>("java-megabyte", 0, null, data)));
        }
        byte[] back = readAll("java-megabyte", 1, 1).get(0).value();
        return Steps.facts("sent", digest(data), "read", digest(back));
    }

    private static Object tooLarge() throws Exception {
        create("java-small", 1, "max.message.bytes", "2000");
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            return offsets(sendAll(producer, List.of(new ProducerRecord<>("java-small", 0, null, new byte[5000]))));
        }
    }

    /** The exception that each record of one batch ends with; the records at 1 and 3 have no key. */
    private static Object badRecords() throws Exception {
        create("java-compacted", 1, "cleanup.policy", "compact");
        List<String> results = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer("linger.ms", 10_000)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < 5; number++) {
                byte[] key = number == 1 || number == 3 ? null : bytes("key");
                sent.add(producer.send(new ProducerRecord<>("java-compacted", 0, key, bytes("v"))));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                try {
                    results.add("offset " + one.get().offset());
                } catch (ExecutionException failure) {
                    results.add(failure.getCause().getMessage());
                }
            }
        }
        return results;
    }

    private static Object keys() throws Exception {
        create("java-keys", 8);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int number = 0; number < KEYS; number++) {
            records.add(new ProducerRecord<>("java-keys", bytes("key-" + number), bytes("v")));
        }
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            return sendAll(producer, records).stream().map(RecordMetadata::partition).collect(Collectors.toList());
        }
    }

    private static Object acks() throws Exception {
        create("java-acks", 1);
        Map<String, Object> results = new LinkedHashMap<>();
        for (String acks : List.of("0", "1", "all")) {
            try (KafkaProducer<byte[], byte[]> producer = producer("acks", acks, "enable.idempotence", "false")) {
                results.put(acks, offsets(sendAll(producer, List.of(value("java-acks", 0, acks)))));
            }
        }
        results.put("read", values(readAll("java-acks", 1, 3)));
        return results;
    }

    private static Object appendTime() throws Exception {
        create("java-append-time", 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            RecordMetadata result = producer.send(
                new ProducerRecord<>("java-append-time", 0, FIRST_TIMESTAMP_MS, null, bytes("late"))).get();
            ConsumerRecord<byte[], byte[]> record = readAll("java-append-time", 1, 1).get(0);
            return Steps.facts("type", record.timestampType().toString(), "same", record.timestamp() == result.timestamp(),
                "now", record.timestamp() >= before && record.timestamp() <= System.currentTimeMillis());
        }
    }

    private static void fillTimes() throws Exception {
        create("java-times", 1);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int number = 0; number < 10; number++) {
                producer.send(new ProducerRecord<>("java-times", 0, FIRST_TIMESTAMP_MS + number * 1000L, null,
                    bytes(String.valueOf(number)))).get();
            }
        }
    }

    private static Object offsetLookups() {
        TopicPartition partition = new TopicPartition("java-times", 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Map<String, Object> results = new LinkedHashMap<>();
            results.put("beginning", consumer.beginningOffsets(List.of(partition)).get(partition));
            results.put("end", consumer.endOffsets(List.of(partition)).get(partition));
            results.put("between", consumer.offsetsForTimes(Map.of(partition, FIRST_TIMESTAMP_MS + 4500)).get(partition).offset());
            results.put("exact", consumer.offsetsForTimes(Map.of(partition, FIRST_TIMESTAMP_MS + 4000)).get(partition).offset());
            results.put("after all", consumer.offsetsForTimes(Map.of(partition, FIRST_TIMESTAMP_MS + 99_000)).get(partition));
            return results;
        }
    }

    private static Object seek() {
        TopicPartition partition = new TopicPartition("java-times", 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 7);
            List<String> forward = values(read(consumer, 3));
            consumer.seek(partition, 2);
            List<String> back = values(read(consumer, 8));
            consumer.seekToEnd(List.of(partition));
            return Steps.facts("forward", forward, "back", back, "end", consumer.position(partition));
        }
    }

    private static Object seekPastTheEnd() {
        TopicPartition partition = new TopicPartition("java-times", 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1000);
            return values(read(consumer, 1));
        }
    }

    /** The consumer's fetch session gains, pauses and loses partitions while records come in. */
    private static Object sessionThatChanges() throws Exception {
        create("java-session", 3);
        List<TopicPartition> partitions = partitionsOf("java-session", 3);
        Map<String, Object> results = new LinkedHashMap<>();
        try (KafkaProducer<byte[], byte[]> producer = producer();
             KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            consumer.poll(Duration.ofMillis(300));
            for (int partition = 0; partition < 3; partition++) {
                producer.send(value("java-session", partition, "first " + partition)).get();
            }
            results.put("all", values(read(consumer, 3)).stream().sorted().collect(Collectors.toList()));
            consumer.pause(List.of(partitions.get(1)));
            for (int partition = 0; partition < 3; partition++) {
                producer.send(value("java-session", partition, "second " + partition)).get();
            }
            List<String> seen = new ArrayList<>(values(read(consumer, 2)));
            results.put("paused", seen.stream().sorted().collect(Collectors.toList()));
            consumer.resume(List.of(partitions.get(1)));
            results.put("resumed", values(read(consumer, 1)));
            consumer.assign(List.of(partitions.get(2)));
            consumer.seek(partitions.get(2), 0);
            results.put("alone", values(read(consumer, 2)));
        }
        return results;
    }

    /** A producer and a consumer outlive their topic, which comes back under its old name with another id. */
    private static Object recreatedTopic() throws Exception {
        create("java-again", 1);
        TopicPartition partition = new TopicPartition("java-again", 0);
        try (KafkaProducer<byte[], byte[]> producer = producer();
             KafkaConsumer<byte[], byte[]> consumer = consumer("auto.offset.reset", "earliest", "metadata.max.age.ms", 1000)) {
            consumer.assign(List.of(partition));
            List<Long> before = offsets(sendAll(producer, List.of(
                value("java-again", 0, "old"), value("java-again", 0, "old"), value("java-again", 0, "old"))));
            List<String> old = values(read(consumer, 3));
            admin.deleteTopics(List.of("java-again")).all().get();
            create("java-again", 1);
            List<Long> after = offsets(sendAll(producer, List.of(value("java-again", 0, "new"))));
            return Steps.facts("before", before, "old", old, "after", after, "new", values(read(consumer, 1)));
        }
    }

    private static Object autoCreate() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            return producer.send(new ProducerRecord<>("java-auto", bytes("made"))).get().offset();
        }
    }

    private static Object unknownTopic() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("allow.auto.create.topics", "false")) {
            return consumer.partitionsFor("java-nowhere", Duration.ofSeconds(5)).size();
        }
    }
}
