import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A loop that reads, processes and writes in transactions until it is killed. Arguments: the servers, the topic read,
 * the topic written, the group, the transactional id, and the protocol of the group, classic or consumer. It prints
 * {@code committed N} after each transaction, N being how many records it has moved.
 */
public final class TransactionalLoop {
    private static final int RECORDS_PER_TRANSACTION = 5;

    public static void main(String[] arguments) {
        KafkaConsumer<String, String> consumer = consumer(arguments[0], arguments[3], arguments[5]);
        KafkaProducer<String, String> producer = producer(arguments[0], arguments[4]);
        producer.initTransactions();
        consumer.subscribe(List.of(arguments[1]));
        int moved = 0;
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(1));
            if (records.isEmpty()) {
                continue;
            }
            try {
                move(consumer, producer, records, arguments[2]);
                moved += records.count();
                System.out.println("committed " + moved);
            } catch (KafkaException aborted) {
                System.out.println("aborted " + aborted);
                producer.abortTransaction();
                seekToCommitted(consumer);
            }
        }
    }

    private static void move(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer,
                             ConsumerRecords<String, String> records, String target) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, record.value()));
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            positions.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private static void seekToCommitted(KafkaConsumer<String, String> consumer) {
        consumer.committed(consumer.assignment()).forEach((partition, offset) ->
            consumer.seek(partition, offset == null ? 0 : offset.offset()));
    }

    private static KafkaConsumer<String, String> consumer(String servers, String group, String protocol) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "group.id", group,
            "group.protocol", protocol, "enable.auto.commit", false, "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "max.poll.records", RECORDS_PER_TRANSACTION);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static KafkaProducer<String, String> producer(String servers, String transactionalId) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "transactional.id", transactionalId);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }
}
