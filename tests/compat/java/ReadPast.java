import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Reads partition 0 of topics from its beginning until a record with the value "good", or until the consumer throws.
 * Arguments: the bootstrap servers, and the topics.
 */
public final class ReadPast {
    private static final Duration TIMEOUT = Duration.ofSeconds(10);

    public static void main(String[] arguments) throws Exception {
        for (String topic : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            Steps.step(topic, () -> read(arguments[0], topic));
        }
    }

    private static Object read(String servers, String topic) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "auto.offset.reset", "earliest",
            "fetch.max.wait.ms", 100);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            long end = System.nanoTime() + TIMEOUT.toNanos();
            while (System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    if ("good".equals(new String(record.value(), StandardCharsets.UTF_8))) {
                        return "past";
                    }
                }
            }
            return "silence";
        } catch (KafkaException error) {
            return error.getMessage();
        }
    }
}
