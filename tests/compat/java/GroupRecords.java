import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.OffsetAndMetadata;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.function.BiFunction;
import java.util.function.Function;

/**
 * Reads records of __consumer_offsets with Kafka's own classes and writes them again. Standard input holds a JSON list
 * of {"key": hex, "value": hex or null}; for each a line comes back with what it says and with the bytes Kafka writes
 * for that. An element {"offset": …, "expires": … or null} is a commit for Kafka to make and write as it would.
 */
public final class GroupRecords {
    private static final HexFormat HEX = HexFormat.of();
    private static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

    public static void main(String[] arguments) throws Exception {
        for (JsonNode given : new ObjectMapper().readTree(System.in)) {
            Steps.step("record", () -> report(given.has("key") ? read(given) : commit(given)));
        }
    }

    private static CoordinatorRecord read(JsonNode given) {
        return read(given, SERDE);
    }

    static CoordinatorRecord read(JsonNode given, CoordinatorRecordSerde serde) {
        ByteBuffer value = given.get("value").isNull() ? null : bytes(given.get("value"));
        return serde.deserialize(bytes(given.get("key")), value);
    }

    private static CoordinatorRecord commit(JsonNode given) {
        OptionalLong expires = given.get("expires").isNull() ? OptionalLong.empty()
            : OptionalLong.of(given.get("expires").asLong());
        return GroupCoordinatorRecordHelpers.newOffsetCommitRecord("group", "topic", 3, new OffsetAndMetadata(
            given.get("offset").asLong(), OptionalInt.of(7), "metadata", 1_700_000_000_000L, expires, new Uuid(1, 2)));
    }

    private static Map<String, Object> report(CoordinatorRecord record) {
        return report(record, SERDE, CoordinatorRecordJsonConverters::writeRecordKeyAsJson,
            CoordinatorRecordJsonConverters::writeRecordValueAsJson);
    }

    /** What a record says, in JSON, and the bytes that a coordinator writes for it. */
    static Map<String, Object> report(CoordinatorRecord record, CoordinatorRecordSerde serde,
            Function<ApiMessage, JsonNode> keyAsJson, BiFunction<ApiMessage, Short, JsonNode> valueAsJson) {
        byte[] value = serde.serializeValue(record);
        JsonNode says = record.value() == null ? null
            : valueAsJson.apply(record.value().message(), record.value().version());
        return Steps.facts("key", keyAsJson.apply(record.key()), "value", says,
            "key bytes", HEX.formatHex(serde.serializeKey(record)),
            "value bytes", value == null ? null : HEX.formatHex(value));
    }

    private static ByteBuffer bytes(JsonNode hex) {
        return ByteBuffer.wrap(HEX.parseHex(hex.asText()));
    }
}
