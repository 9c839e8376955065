import java.util.Map;
import java.util.function.BooleanSupplier;
import org.sourcelab.kafka.connect.apiclient.Configuration;
import org.sourcelab.kafka.connect.apiclient.KafkaConnectClient;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorPluginConfigDefinition;
import org.sourcelab.kafka.connect.apiclient.request.dto.NewConnectorDefinition;
import org.sourcelab.kafka.connect.apiclient.request.post.PostConnectorRestart;
import org.sourcelab.kafka.connect.apiclient.rest.exceptions.ResourceNotFoundException;

/** Every operation of the Java client on a connector of its own: java Operations URL NAME FILE. */
public final class Operations {
    private static final int LOOKS_MAX = 300;
    private final KafkaConnectClient client;
    private final String name;
    private final Map<String, String> config;

    private Operations(String url, String name, String file) {
        this.client = new KafkaConnectClient(new Configuration(url));
        this.name = name;
        this.config = Map.of("connector.class", "FileStreamSource", "file", file, "topic", name, "tasks.max", "1");
    }

    public static void main(String[] arguments) throws InterruptedException {
        Operations operations = new Operations(arguments[0], arguments[1], arguments[2]);
        operations.cluster();
        operations.life();
        operations.states();
        operations.end();
        System.out.println("all operations done");
    }

    private void cluster() {
        demand(client.getConnectServerVersion().getVersion().equals("4.1.1"), "the version");
        demand(client.getConnectorPlugins().stream()
            .anyMatch(plugin -> plugin.getClassName().endsWith("FileStreamSourceConnector")), "the plugins");
        ConnectorPluginConfigDefinition wrong = ConnectorPluginConfigDefinition.newBuilder()
            .withName("FileStreamSource").withConfig("connector.class", "FileStreamSource").build();
        demand(client.validateConnectorPluginConfig(wrong).getErrorCount() == 2, "the errors of a config");
    }

    private void life() throws InterruptedException {
        NewConnectorDefinition made = NewConnectorDefinition.newBuilder().withName(name).withConfig(config).build();
        demand(client.addConnector(made).getName().equals(name), "a new connector");
        runs();
        demand(client.getConnectors().contains(name), "the names");
        demand(client.getConnectorsWithExpandedStatus().getStatusForConnector(name).getType().equals("source"), "states");
        demand(client.getConnectorsWithExpandedInfo().getDefinitionForConnector(name).getName().equals(name), "configs");
        demand(client.getConnectorsWithAllExpandedMetadata().getConnectorNames().contains(name), "everything");
        demand(client.getConnector(name).getConfig().get("topic").equals(name), "a connector");
        demand(client.getConnectorConfig(name).get("name").equals(name), "a config");
        client.updateConnectorConfig(name, Map.of(
            "connector.class", "FileStreamSource", "file", config.get("file"), "topic", name, "batch.size", "9"));
        demand(client.getConnectorConfig(name).get("batch.size").equals("9"), "a changed config");
        runs();
        demand(client.getConnectorTasks(name).size() == 1, "the tasks");
        // The state that was waited for may have been from before the change.
        until(() -> client.getConnectorTaskStatus(name, 0).getState().equals("RUNNING"), "a task's state");
        until(() -> client.getConnectorTopics(name).getTopics().contains(name), "the topics");
        demand(client.resetConnectorTopics(name), "a reset of topics");
    }

    private void states() throws InterruptedException {
        demand(client.restartConnector(name), "a restart");
        runs();
        demand(client.restartConnector(new PostConnectorRestart(name).withIncludeTasks(true)), "a restart of all");
        runs();
        demand(client.restartConnectorTask(name, 0), "a restart of a task");
        runs();
        demand(client.pauseConnector(name), "a pause");
        until(() -> isIn("PAUSED"), "paused");
        demand(client.resumeConnector(name), "a resume");
        runs();
    }

    private void end() throws InterruptedException {
        demand(client.deleteConnector(name), "a deletion");
        until(() -> !client.getConnectors().contains(name), "gone");
        try {
            client.getConnector(name);
        } catch (ResourceNotFoundException expected) {
            return;
        }
        throw new AssertionError("a deleted connector was found");
    }

    private void runs() throws InterruptedException {
        until(() -> isIn("RUNNING"), "running");
    }

    private boolean isIn(String state) {
        try {
            var status = client.getConnectorStatus(name);
            return status.getConnector().get("state").equals(state) && status.getTasks().size() == 1
                && status.getTasks().get(0).getState().equals(state);
        } catch (ResourceNotFoundException notYet) {
            return false;
        }
    }

    private static void until(BooleanSupplier isSo, String what) throws InterruptedException {
        for (int look = 0; look < LOOKS_MAX; look++) {
            if (isSo.getAsBoolean()) {
                return;
            }
            Thread.sleep(200);
        }
        throw new AssertionError("not to be had: " + what);
    }

    private static void demand(boolean isSo, String what) {
        if (!isSo) {
            throw new AssertionError("wrong: " + what);
        }
    }
}
