import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * Opens partition directories with Kafka's own log loading: as after a clean stop, or with the recovery that follows a
 * kill. Arguments: pairs of "clean" or "unclean" and a directory. Each log is read from end to end and closed again, so
 * that the directory is then as Kafka would leave it.
 */
public final class OpenLog {
    private static final int PRODUCER_ID_EXPIRATION_MS = 86_400_000;
    private static final int CHECK_INTERVAL_MS = 600_000;

    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (int at = 0; at < arguments.length; at += 2) {
            boolean clean = arguments[at].equals("clean");
            File directory = new File(arguments[at + 1]);
            Steps.step(arguments[at], () -> open(directory, clean, scheduler));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> open(File directory, boolean clean, KafkaScheduler scheduler) throws Exception {
        UnifiedLog log = UnifiedLog.create(directory, new LogConfig(Map.of()), 0L, 0L, scheduler,
            new BrokerTopicStats(), Time.SYSTEM, PRODUCER_ID_EXPIRATION_MS,
            new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, false), CHECK_INTERVAL_MS,
            new LogDirFailureChannel(1), clean, Optional.empty());
        long records = 0;
        long valueBytes = 0;
        long next = log.logStartOffset();
        boolean consecutive = true;
        for (LogSegment segment : log.logSegments()) {
            for (RecordBatch batch : segment.log().batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    consecutive &= record.offset() == next;
                    next = record.offset() + 1;
                    records++;
                    valueBytes += record.valueSize();
                }
            }
        }
        Map<String, Long> producers = new TreeMap<>();
        log.activeProducers().forEach(state -> producers.put(
            String.valueOf(state.producerId()), (long) state.lastSequence()));
        Map<String, Object> facts = Steps.facts("start", log.logStartOffset(), "end", log.logEndOffset(),
            "segments", log.numberOfSegments(), "records", records, "valueBytes", valueBytes,
            "consecutive", consecutive, "epoch", log.latestEpoch().orElse(-1),
            "topicId", log.topicId().map(Object::toString).orElse(null), "lastSequences", producers);
        log.close();
        return facts;
    }
}
