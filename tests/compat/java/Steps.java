import com.fasterxml.jackson.databind.ObjectMapper;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/**
 * Named steps that say on standard output, one JSON object a line, what they found or which exception ended them.
 * The test in Python judges; a step that fails does not keep the next ones from being tried.
 */
final class Steps {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Steps() {
    }

    static void step(String name, Callable<?> action) {
        Map<String, Object> report = new LinkedHashMap<>();
        report.put("step", name);
        try {
            report.put("result", action.call());
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            report.put("error", cause.getClass().getSimpleName());
            report.put("message", String.valueOf(cause.getMessage()));
        }
        say(report);
    }

    static void say(Object report) {
        try {
            System.out.println(JSON.writeValueAsString(report));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** A map of the pairs, in their order; unlike Map.of it takes null. */
    static Map<String, Object> facts(Object... pairs) {
        Map<String, Object> facts = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            facts.put((String) pairs[at], pairs[at + 1]);
        }
        return facts;
    }
}
