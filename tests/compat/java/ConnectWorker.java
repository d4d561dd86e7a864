import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.runtime.TargetState;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.WorkerGroupMember;
import org.apache.kafka.connect.runtime.distributed.WorkerRebalanceListener;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.storage.ConfigBackingStore;
import org.apache.kafka.connect.util.ConnectorTaskId;

import java.lang.reflect.Proxy;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;

/**
 * A worker of Kafka Connect as far as its group is concerned: it joins, shares one connector and its two tasks with the
 * other workers, and leaves. Nothing is run, and the configuration comes from no topic. It polls in a thread of its own,
 * because it waits inside for the others to join.
 */
final class ConnectWorker implements WorkerRebalanceListener {
    static final Set<String> EVERYTHING = new TreeSet<>(Set.of("c", "c-0", "c-1"));

    private static final ConnectorTaskId FIRST = new ConnectorTaskId("c", 0);
    private static final ConnectorTaskId SECOND = new ConnectorTaskId("c", 1);
    private static final ClusterConfigState STATE = new ClusterConfigState(1, null, Map.of("c", 2),
        Map.of("c", Map.of()), Map.of("c", TargetState.STARTED), Map.of(FIRST, Map.of(), SECOND, Map.of()),
        Map.of(), Map.of(), Map.of(), Set.of(), Set.of());

    private final WorkerGroupMember member;
    private final Set<String> work = new ConcurrentSkipListSet<>();
    private final Thread thread = new Thread(this::run);
    private volatile boolean stopping;

    ConnectWorker(String servers, String group, String protocol, String url) {
        Map<String, String> configs = new HashMap<>(Map.of(
            "bootstrap.servers", servers,
            "group.id", group,
            "connect.protocol", protocol,
            "heartbeat.interval.ms", "300",
            "scheduled.rebalance.max.delay.ms", "0",
            "key.converter", "org.apache.kafka.connect.json.JsonConverter",
            "value.converter", "org.apache.kafka.connect.json.JsonConverter"));
        configs.putAll(Map.of(
            "config.storage.topic", "configs",
            "offset.storage.topic", "offsets",
            "status.storage.topic", "status"));
        ConfigBackingStore store = (ConfigBackingStore) Proxy.newProxyInstance(
            ConnectWorker.class.getClassLoader(), new Class<?>[]{ConfigBackingStore.class},
            (proxy, method, arguments) -> method.getName().equals("snapshot") ? STATE : null);
        member = new WorkerGroupMember(
            new DistributedConfig(configs), url, store, this, Time.SYSTEM, "worker", new LogContext());
        thread.setDaemon(true);
        thread.start();
    }

    private void run() {
        while (!stopping) {
            member.ensureActive(() -> () -> { });
            member.poll(50, () -> () -> { });
        }
        member.maybeLeaveGroup("the test ends");
        member.stop();
    }

    /** What this worker has to run. */
    Set<String> work() {
        return new TreeSet<>(work);
    }

    void stop() throws InterruptedException {
        stopping = true;
        thread.join();
    }

    @Override
    public void onAssigned(ExtendedAssignment assignment, int generation) {
        assignment.connectors().forEach(work::add);
        assignment.tasks().forEach(task -> work.add(task.toString()));
        if (!assignment.revokedConnectors().isEmpty() || !assignment.revokedTasks().isEmpty()) {
            member.requestRejoin();    // as DistributedHerder does: others get it when all have joined again without it
        }
    }

    @Override
    public void onRevoked(String leader, Collection<String> connectors, Collection<ConnectorTaskId> tasks) {
        connectors.forEach(work::remove);
        tasks.forEach(task -> work.remove(task.toString()));
    }

    @Override
    public void onPollTimeoutExpiry() {
        throw new IllegalStateException("polled too seldom");
    }
}
