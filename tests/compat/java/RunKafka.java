import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;

/**
 * A broker and controller of Kafka's own in one process, started in one JVM and formatted before if need be: without
 * controller.quorum.voters as a quorum of its own. The first argument is the properties file, the second the cluster's id unless it is new. It says "started" when it answers clients. A line of input stops it cleanly; the end of input ends it
 * at once, without saving anything, so it never outlives the test that started it.
 */
public final class RunKafka {
    public static void main(String[] arguments) throws Exception {
        Properties settings = Utils.loadProps(arguments[0]);
        String clusterId = arguments.length > 1 ? arguments[1] : Uuid.randomUuid().toString();
        List<String> format = new ArrayList<>(List.of(
            "format", "--cluster-id", clusterId, "--config", arguments[0], "--ignore-formatted"));
        if (!settings.containsKey("controller.quorum.voters")) {
            format.add("--standalone");
        }
        String directory = settings.getProperty("log.dirs").split(",")[0];
        boolean isFormatted = new java.io.File(directory, "meta.properties").exists();
        if (!isFormatted && StorageTool.execute(format.toArray(new String[0]), System.out) != 0) {
            Runtime.getRuntime().halt(1);
        }
        KafkaRaftServer server = null;
        try {
            server = new KafkaRaftServer(KafkaConfig.fromProps(settings), Time.SYSTEM);
            server.startup();
        } catch (Throwable error) {
            error.printStackTrace(System.out);
            Runtime.getRuntime().halt(1);
        }
        System.out.println("started");
        if (System.in.read() >= 0) {
            server.shutdown();
            server.awaitShutdown();
        }
        Runtime.getRuntime().halt(0);
    }
}
