import kafka.server.KafkaConfig;

import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Every key that Kafka's own definitions have, one a line: whose it is, its name, type, default and update mode. */
public final class ConfigKeys {
    public static void main(String[] arguments) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        say("broker", AbstractKafkaConfig.CONFIG_DEF, modes);
        say("throttles", QuotaConfig.brokerQuotaConfigs(), modes);
        say("topic", LogConfig.configDefCopy(), modes);
        say("group", GroupConfig.CONFIG_DEF, modes);
        for (String name : ClientMetricsConfigs.configNames()) {
            Steps.say(Steps.facts("of", "client-metrics", "name", name));
        }
    }

    private static void say(String of, ConfigDef definition, Map<String, String> modes) {
        definition.configKeys().forEach((name, key) -> Steps.say(Steps.facts(
            "of", of, "name", name, "type", key.type.toString(), "internal", key.internalConfig,
            "default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null,
            "mode", modes.getOrDefault(name, "read-only"), "validator", String.valueOf(key.validator))));
    }
}
