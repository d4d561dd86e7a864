import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.coordinator.transaction.TransactionCoordinatorRecordSerde;
import org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordJsonConverters;

/** Does with records of __transaction_state what GroupRecords does with those of groups. */
public final class TransactionRecords {
    private static final TransactionCoordinatorRecordSerde SERDE = new TransactionCoordinatorRecordSerde();

    public static void main(String[] arguments) throws Exception {
        for (JsonNode given : new ObjectMapper().readTree(System.in)) {
            Steps.step("record", () -> GroupRecords.report(GroupRecords.read(given, SERDE), SERDE,
                CoordinatorRecordJsonConverters::writeRecordKeyAsJson,
                CoordinatorRecordJsonConverters::writeRecordValueAsJson));
        }
    }
}
