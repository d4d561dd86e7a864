import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.utils.internals.Exit;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Runs the main methods of several of Kafka's tools in one JVM, because a start of their own costs each a second or two.
 * Standard input holds a JSON list of {"tool": class, "arguments": […], "input": text}; for each a line with its exit
 * code and what it printed comes back.
 */
public final class RunTools {
    /** Takes the place of the process's end. Some tools catch it as an error of theirs and exit again: the first counts. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1L;
    }

    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Map<String, Object> result;

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure leave = (code, message) -> {
            tell(code);
            throw new Exited();
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        PrintStream out = System.out;
        for (JsonNode run : new ObjectMapper().readTree(System.in)) {
            OUT.reset();
            ERR.reset();
            HOOKS.clear();
            result = null;
            System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(run.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
            run(run.get("tool").asText(), run.get("arguments"));
            HOOKS.forEach(Runnable::run);    // the console producer sends what it has gathered when the process ends
            System.setOut(out);
            Steps.say(result);
        }
        Runtime.getRuntime().halt(0);    // tools leave threads behind that nobody needs any more
    }

    private static void tell(int code) {
        System.out.flush();
        System.err.flush();
        if (result == null) {
            result = Steps.facts("code", code, "out", OUT.toString(StandardCharsets.UTF_8),
                "err", ERR.toString(StandardCharsets.UTF_8));
        }
    }

    private static void run(String tool, JsonNode given) throws Exception {
        List<String> arguments = new ArrayList<>();
        given.forEach(argument -> arguments.add(argument.asText()));
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
            tell(0);
        } catch (InvocationTargetException wrapper) {
            wrapper.getCause().printStackTrace();
            tell(1);
        }
    }
}
