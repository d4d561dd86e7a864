import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * A Streams application that counts words exactly once, by region: lines, whose key is a person, are joined with the
 * table of the persons' regions. Each word goes through a repartition topic to its counter, whose store has a changelog
 * topic. Nothing is cached, so each word that is counted is one record of the output: "region/word", its count so far.
 * Arguments: the bootstrap servers, the directory of the stores, and a file with properties of clients where they need
 * some. It prints its states, and the error that ends it, and runs until it is killed.
 */
public final class WordCount {
    public static void main(String[] arguments) throws IOException {
        Map<String, Object> settings = new HashMap<>();
        if (arguments.length > 2) {
            settings.putAll(Utils.propsToStringMap(Utils.loadProps(arguments[2])));
        }
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        // A killed application is missed after this; the default of 45 s is for deaths that are rare.
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 3000);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        KafkaStreams streams = new KafkaStreams(topology().build(), new StreamsConfig(settings));
        streams.setStateListener((state, before) -> say(state.toString()));
        streams.setUncaughtExceptionHandler(error -> {
            say("ended by " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
    }

    private static StreamsBuilder topology() {
        var strings = Serdes.String();
        var builder = new StreamsBuilder();
        KTable<String, String> regions = builder.table("regions", Consumed.with(strings, strings));
        KStream<String, String> lines = builder.stream("lines", Consumed.with(strings, strings));
        lines.join(regions, (line, region) -> region + ":" + line, Joined.with(strings, strings, strings))
            .flatMap((person, joined) -> {
                String[] parts = joined.split(":", 2);
                return Arrays.stream(parts[1].split(" "))
                    .map(word -> KeyValue.pair(parts[0] + "/" + word, word)).toList();
            })
            .groupByKey(Grouped.with("words", strings, strings))
            .count(Materialized.as("counters"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts", Produced.with(strings, strings));
        return builder;
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
