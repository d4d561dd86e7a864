import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The Java producer and consumer by TLS and logins. Reads cases (secured_clients.py); each is two steps. */
public final class SecuredSteps {
    private static final String MODULES = "org.apache.kafka.common.security.";
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    public static void main(String[] arguments) throws Exception {
        Path directory = Files.createTempDirectory("tokens");
        Path token = directory.resolve("token");
        // Kafka's client reads tokens of URLs that are allowed by this alone.
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token.toUri().toString());
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", token.toString());
        for (JsonNode one : new ObjectMapper().readTree(System.in)) {
            Files.writeString(token, one.get("token").asText());
            Map<String, Object> settings = settings(one, token);
            Steps.step(one.get("name").asText() + " write", () -> write(settings, one.get("topic").asText()));
            settings.put("group.id", one.get("group").asText());
            Steps.step(one.get("name").asText() + " read", () -> read(settings, one.get("topic").asText()));
        }
        Files.deleteIfExists(token);
        Files.delete(directory);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> settings(JsonNode one, Path token) {
        String mechanism = one.get("mechanism").asText();
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", one.get("servers").asText(),
            "security.protocol", mechanism.isEmpty() ? "SSL" : "SASL_SSL",
            "ssl.truststore.type", "PEM",
            "ssl.truststore.location", one.get("ca").asText()));
        if (!one.get("certificate").asText().isEmpty()) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", one.get("certificate").asText());
        }
        if (!mechanism.isEmpty()) {
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", jaas(mechanism, one));
        }
        if (mechanism.equals("OAUTHBEARER")) {
            settings.put("sasl.oauthbearer.token.endpoint.url", token.toUri().toString());
            settings.put("sasl.login.callback.handler.class", MODULES + "oauthbearer.OAuthBearerLoginCallbackHandler");
            settings.put("sasl.oauthbearer.jwt.retriever.class", MODULES + "oauthbearer.FileJwtRetriever");
        }
        return settings;
    }

    private static String jaas(String mechanism, JsonNode one) {
        String login = " required username=\"" + one.get("user").asText()
            + "\" password=\"" + one.get("password").asText() + "\";";
        return MODULES + switch (mechanism) {
            case "PLAIN" -> "plain.PlainLoginModule" + login;
            case "OAUTHBEARER" -> "oauthbearer.OAuthBearerLoginModule required;";
            default -> "scram.ScramLoginModule" + login;
        };
    }

    private static Object write(Map<String, Object> settings, String topic) throws Exception {
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            return producer.send(new ProducerRecord<>(topic, "x".getBytes())).get().offset() >= 0;
        }
    }

    private static Object read(Map<String, Object> settings, String topic) {
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", 100);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + TIMEOUT.toNanos();
            while (System.nanoTime() < end) {
                if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                    return true;
                }
            }
            return false;
        }
    }
}
