import kafka.server.KafkaConfig;

import com.fasterxml.jackson.databind.ObjectMapper;

import java.util.Map;
import java.util.Properties;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Every key that Kafka's own definitions have, one a line: whose it is, its name, type, default and update mode. Then
 * for each pair of a broker's key and a value on standard input, a list of lists, whether a broker would start with it.
 */
public final class ConfigKeys {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        say("broker", AbstractKafkaConfig.CONFIG_DEF, modes);
        say("throttles", QuotaConfig.brokerQuotaConfigs(), modes);
        say("topic", LogConfig.configDefCopy(), modes);
        say("group", GroupConfig.CONFIG_DEF, modes);
        for (String name : ClientMetricsConfigs.configNames()) {
            Steps.say(Steps.facts("of", "client-metrics", "name", name));
        }
        for (String[] pair : new ObjectMapper().readValue(System.in, String[][].class)) {
            Properties settings = new Properties();
            settings.putAll(Map.of("process.roles", "broker,controller", "node.id", "1",
                "controller.quorum.voters", "1@localhost:9093", "controller.listener.names", "CONTROLLER",
                "listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"));
            settings.put(pair[0], pair[1]);
            String error = null;
            try {
                // The log manager checks the defaults of topics when it is created.
                new LogConfig(KafkaConfig.fromProps(settings, false).extractLogConfigMap());
            } catch (RuntimeException refusal) {
                error = refusal.toString();
            }
            Steps.say(Steps.facts("of", "value", "name", pair[0], "value", pair[1], "error", error));
        }
    }

    private static void say(String of, ConfigDef definition, Map<String, String> modes) {
        definition.configKeys().forEach((name, key) -> Steps.say(Steps.facts(
            "of", of, "name", name, "type", key.type.toString(), "internal", key.internalConfig,
            "default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null,
            "mode", modes.getOrDefault(name, "read-only"), "validator", String.valueOf(key.validator))));
    }
}
