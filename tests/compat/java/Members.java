import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;

/**
 * Group members, each a consumer that polls in a thread of its own. Lines of JSON on standard input say which member
 * does what; lines of JSON on standard output answer, and tell what each member owns and reads.
 */
public final class Members {
    private static final Map<Integer, Member> MEMBERS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = json.readTree(line);
            int number = asked.get("member").asInt();
            if (asked.get("call").asText().equals("join")) {
                MEMBERS.put(number, new Member(number, asked));
            } else {
                MEMBERS.get(number).asked.add(asked);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void tell(Object... pairs) {
        Steps.say(Steps.facts(pairs));
    }

    private static final class Member extends Thread {
        final Queue<JsonNode> asked = new ConcurrentLinkedQueue<>();
        private final int number;
        private final JsonNode joining;
        private final JsonNode settings;
        private KafkaConsumer<String, String> consumer;
        private Set<TopicPartition> owned = Set.of();
        private boolean leaving;

        Member(int number, JsonNode joining) {
            this.number = number;
            this.joining = joining;
            this.settings = joining.get("settings");
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try {
                answer(joining);
                while (!leaving) {
                    turn();
                }
            } catch (Throwable error) {
                tell("member", number, "failed", String.valueOf(error));
                consumer.close();
            }
        }

        private void turn() {
            List<Object> received = new ArrayList<>();
            Duration timeout = Duration.ofMillis(settings.get("poll_ms").asLong());
            for (ConsumerRecord<String, String> record : consumer.poll(timeout)) {
                received.add(List.of(record.topic(), record.partition(), record.offset(), record.value()));
            }
            if (!received.isEmpty()) {
                tell("member", number, "received", received);
            }
            if (!owned.equals(consumer.assignment())) {
                owned = Set.copyOf(consumer.assignment());
                List<Object> places = new ArrayList<>();
                owned.forEach(place -> places.add(List.of(place.topic(), place.partition())));
                tell("member", number, "owned", places);
            }
            for (JsonNode one = asked.poll(); one != null; one = asked.poll()) {
                answer(one);
            }
        }

        private void answer(JsonNode one) {
            int id = one.get("id").asInt();
            try {
                if (one.get("call").asText().equals("commit_soon")) {
                    commitSoon(id, offsets(one.get("offsets")));
                } else {
                    tell("id", id, "result", does(one.get("call").asText(), one));
                }
            } catch (Exception error) {
                tell("id", id, "error", String.valueOf(error));
            }
        }

        private Object does(String call, JsonNode one) {
            switch (call) {
                case "join":
                    subscribeAsConfigured();
                    return null;
                case "leave":
                    leaving = true;
                    consumer.close();
                    return null;
                case "commit":
                    commit(one.get("offsets"));
                    return null;
                case "committed":
                    OffsetAndMetadata found = consumer.committed(Set.of(place(one))).get(place(one));
                    return found == null ? null : found.offset();
                case "seek":
                    consumer.seek(place(one), one.get("offset").asLong());
                    return null;
                case "pause":
                    consumer.pause(Set.of(place(one)));
                    return null;
                case "resume":
                    consumer.resume(Set.of(place(one)));
                    return null;
                case "end_offset":
                    return consumer.endOffsets(Set.of(place(one))).get(place(one));
                default:
                    throw new IllegalArgumentException(call);
            }
        }

        private void subscribeAsConfigured() {
            Map<String, Object> configs = new HashMap<>();
            configs.put("bootstrap.servers", joining.get("servers").asText());
            configs.put("group.id", joining.get("group").asText());
            configs.put("auto.offset.reset", "earliest");
            configs.put("metadata.max.age.ms", settings.get("metadata_age_ms").asInt());
            configs.put("reconnect.backoff.max.ms", 200);
            configs.put("fetch.max.wait.ms", 100);    // closing waits for the fetch under way
            configs.put("enable.auto.commit", !settings.get("auto_commit_ms").isNull());
            configs.put("auto.commit.interval.ms", settings.get("auto_commit_ms").asInt(5000));
            if (!settings.get("instance_id").isNull()) {
                configs.put("group.instance.id", settings.get("instance_id").asText());
            }
            if (settings.has("strategies")) {
                configs.put("group.protocol", "classic");
                configs.put("partition.assignment.strategy", settings.get("strategies").asText());
                configs.put("session.timeout.ms", settings.get("session_ms").asInt());
                configs.put("heartbeat.interval.ms", settings.get("heartbeat_ms").asInt());
            } else {    // then the broker decides about sessions and heartbeats
                configs.put("group.protocol", "consumer");
                if (settings.has("assignor")) {
                    configs.put("group.remote.assignor", settings.get("assignor").asText());
                }
            }
            consumer = new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
            subscribe();
        }

        /** To names, or to one expression, as librdkafka takes it: what begins with "^". */
        private void subscribe() {
            List<String> topics = new ArrayList<>();
            joining.get("topics").forEach(topic -> topics.add(topic.asText()));
            if (!topics.get(0).startsWith("^")) {
                consumer.subscribe(topics);
            } else if (settings.has("strategies")) {
                consumer.subscribe(Pattern.compile(topics.get(0)));
            } else {
                consumer.subscribe(new SubscriptionPattern(topics.get(0)));
            }
        }

        private void commit(JsonNode offsets) {
            if (offsets.isNull()) {
                consumer.commitSync();
            } else {
                consumer.commitSync(offsets(offsets));
            }
        }

        private void commitSoon(int id, Map<TopicPartition, OffsetAndMetadata> offsets) {
            consumer.commitAsync(offsets, (done, error) -> {
                if (error == null) {
                    tell("id", id, "result", null);
                } else {
                    tell("id", id, "error", String.valueOf(error));
                }
            });
        }

        private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode given) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            given.forEach(each -> offsets.put(new TopicPartition(each.get(0).asText(), each.get(1).asInt()),
                new OffsetAndMetadata(each.get(2).asLong(), each.get(3).asText())));
            return offsets;
        }

        private static TopicPartition place(JsonNode one) {
            return new TopicPartition(one.get("place").get(0).asText(), one.get("place").get(1).asInt());
        }
    }
}
