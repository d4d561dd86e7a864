import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * A source of Kafka Connect whose tasks count without end, each from where its offset says: the records of one poll are
 * one transaction. Their keys are the number of the task, their values what was counted.
 */
public final class NumbersConnector extends SourceConnector {
    private static final int RECORDS_PER_POLL = 10;
    private static final int MILLISECONDS_BETWEEN_POLLS = 20;

    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maximum) {
        return IntStream.range(0, maximum)
            .mapToObj(number -> Map.of("task", Integer.toString(number), "topic", settings.get("topic"))).toList();
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Numbers.class;
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef().define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "where they go");
    }

    @Override
    public String version() {
        return "1";
    }

    @Override
    public void stop() {
    }

    /** One of its tasks. */
    public static final class Numbers extends SourceTask {
        private Map<String, String> partition;
        private String topic;
        private long next;

        @Override
        public void start(Map<String, String> given) {
            partition = Map.of("task", given.get("task"));
            topic = given.get("topic");
            Map<String, Object> offset = context.offsetStorageReader().offset(partition);
            next = offset == null ? 0 : (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(MILLISECONDS_BETWEEN_POLLS);
            List<SourceRecord> records = new ArrayList<>();
            for (int count = 0; count < RECORDS_PER_POLL; count++) {
                String value = Long.toString(next++);
                records.add(new SourceRecord(partition, Map.of("next", next), topic,
                    Schema.STRING_SCHEMA, partition.get("task"), Schema.STRING_SCHEMA, value));
            }
            return records;
        }

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void stop() {
        }
    }
}
