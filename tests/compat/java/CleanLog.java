import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/**
 * Compacts partition directories with Kafka's own Cleaner. Standard input is a list of
 * {"directory", "config", "firstDirtyOffset", "stableOffset", "nowMs"}; each directory is opened as after a clean stop,
 * cleaned once and closed, so that it is then as Kafka would leave it.
 */
public final class CleanLog {
    private static final int PRODUCER_ID_EXPIRATION_MS = 86_400_000;
    private static final int CHECK_INTERVAL_MS = 600_000;
    private static final int MAP_BYTES = 1 << 22;
    private static final int IO_BUFFER_BYTES = 1 << 16;
    private static final int MAX_IO_BUFFER_BYTES = 1 << 24;

    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (JsonNode round : new ObjectMapper().readTree(System.in)) {
            Steps.step(round.get("directory").asText(), () -> clean(round, scheduler));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> clean(JsonNode round, KafkaScheduler scheduler) throws Exception {
        Map<String, String> config = new HashMap<>();
        round.get("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        UnifiedLog log = UnifiedLog.create(new File(round.get("directory").asText()), new LogConfig(config), 0L, 0L,
            scheduler, new BrokerTopicStats(), Time.SYSTEM, PRODUCER_ID_EXPIRATION_MS,
            new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, false), CHECK_INTERVAL_MS,
            new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(MAP_BYTES), IO_BUFFER_BYTES, MAX_IO_BUFFER_BYTES, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM), Time.SYSTEM, partition -> { });
        LogToClean cleanable = new LogToClean(log, round.get("firstDirtyOffset").asLong(),
            round.get("stableOffset").asLong(), false);
        long lastStableOffset = log.lastStableOffset();
        Map.Entry<Long, CleanerStats> done = cleaner.doClean(cleanable, round.get("nowMs").asLong());
        Map<String, Object> facts = Steps.facts("endOffset", done.getKey(), "read", done.getValue().messagesRead(),
            "kept", done.getValue().messagesWritten(), "lastStableOffset", lastStableOffset,
            "uncleanable", cleanable.firstUncleanableOffset(), "cleanBytes", cleanable.cleanBytes(),
            "cleanableBytes", cleanable.cleanableBytes());
        log.close();
        return facts;
    }
}
